/** Colours of curves, in the order of their numbers, and of what is around them, by the page's scheme. */
export const CURVE_COLOURS = {
  light: ["#2f6db5", "#b35a12", "#2e8259", "#8a4fa3", "#b03a4c", "#6b6f2a", "#20777f", "#7a5c46"],
  dark: ["#74a9e6", "#e59a55", "#66bd92", "#c293d8", "#e4808f", "#b9bd68", "#63c2ca", "#c4a48c"],
};
export const LINE_COLOURS = {
  light: { grid: "#e6e8ea", text: "#4b5563", mark: "#b03a4c", paper: "#ffffff" },
  dark: { grid: "#33373d", text: "#b4bac2", mark: "#e4808f", paper: "#1b1e23" },
};

export type Scheme = keyof typeof CURVE_COLOURS;

export function curveColour(scheme: Scheme, number: number): string {
  return CURVE_COLOURS[scheme][number % CURVE_COLOURS[scheme].length]!;
}
