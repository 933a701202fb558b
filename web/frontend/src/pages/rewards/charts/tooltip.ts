/** The look of the charts' tooltips in both colour schemes. */
export const TOOLTIP = {
  contentStyle: {
    background: "var(--assay-panel)",
    border: "1px solid var(--assay-border)",
    borderRadius: 4,
    fontSize: 12,
  },
  itemStyle: { color: "inherit" },
  isAnimationActive: false,
} as const;
