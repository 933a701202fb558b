import { createTheme, defaultVariantColorsResolver, type CSSVariablesResolver } from "@mantine/core";

import { t } from "../i18n";

/** Calm and dense: small controls, one accent, numbers that line up. */
export const theme = createTheme({
  primaryColor: "teal",
  primaryShade: { light: 9, dark: 4 },
  autoContrast: true,
  respectReducedMotion: true,
  // The library picks the text on a filled control by the shade of the light scheme, and the dark one has a pale shade.
  variantColorResolver: (options) => {
    const resolved = defaultVariantColorsResolver(options);
    const white = options.variant === "filled" && resolved.color === "var(--mantine-color-white)";
    return white ? { ...resolved, color: "light-dark(var(--mantine-color-white), var(--mantine-color-black))" } : resolved;
  },
  fontFamily: "'Inter Variable', system-ui, sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SFMono-Regular', Menlo, Consolas, monospace",
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.125rem" },
  defaultRadius: "sm",
  headings: { fontWeight: "600", sizes: { h1: { fontSize: "1.25rem" }, h2: { fontSize: "1.0625rem" }, h3: { fontSize: "0.9375rem" } } },
  components: {
    Button: { defaultProps: { size: "xs" } },
    TextInput: { defaultProps: { size: "xs" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs" } },
    MultiSelect: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
    SegmentedControl: { defaultProps: { size: "xs" } },
    PasswordInput: { defaultProps: { size: "xs" } },
    Notification: { defaultProps: () => ({ closeButtonProps: { "aria-label": t("Close") } }) },
    Modal: { defaultProps: () => ({ closeButtonProps: { "aria-label": t("Close") } }) },
    Table: { defaultProps: { verticalSpacing: 4, horizontalSpacing: "xs" } },
  },
});

const COLOURS = ["teal", "gray", "yellow", "red", "green", "blue", "orange", "violet", "grape", "cyan", "indigo", "pink", "lime"];

/** The text of tinted badges, alerts and links: the library's own shades are too pale to read at this size (WCAG AA). */
export const readableColours: CSSVariablesResolver = () => ({
  variables: {},
  light: Object.fromEntries(
    COLOURS.flatMap((colour) => [
      [`--mantine-color-${colour}-light-color`, `color-mix(in srgb, var(--mantine-color-${colour}-9), black 35%)`],
      [`--mantine-color-${colour}-text`, `color-mix(in srgb, var(--mantine-color-${colour}-9), black 25%)`],
      // The library's shade under the pointer is paler than the one it lies on.
      [`--mantine-color-${colour}-filled-hover`, `color-mix(in srgb, var(--mantine-color-${colour}-9), black 15%)`],
    ]).concat([
      ["--mantine-color-dimmed", "var(--mantine-color-gray-7)"],
      ["--mantine-color-error", "color-mix(in srgb, var(--mantine-color-red-9), black 15%)"],
      ["--mantine-primary-color-filled-hover", "var(--mantine-color-teal-filled-hover)"],
    ]),
  ),
  dark: {
    "--mantine-color-dimmed": "var(--mantine-color-dark-1)",
    "--mantine-color-error": "var(--mantine-color-red-4)",
  },
});
