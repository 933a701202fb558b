import "./reading.css";

import { useLocalStorage } from "@mantine/hooks";

/** How a person reads texts: kept in the browser, applied to the whole page. */
export interface Reading {
  /** Of the text, as a multiple of the page's own. */
  size: number;
  font: Font;
  /** Long lines of code are broken, or scroll. */
  wrapCode: boolean;
}

export type Font = "sans" | "serif" | "mono" | "dyslexia";

export const SIZES = [0.875, 1, 1.15, 1.3, 1.5];

const NONE: Reading = { size: 1, font: "sans", wrapCode: false };

const STORED = "assay.reading";

/** The person's reading, and a way to change parts of it. */
export function useReading(): [Reading, (part: Partial<Reading>) => void] {
  const [stored, setReading] = useLocalStorage<Partial<Reading>>({ key: STORED, defaultValue: {}, getInitialValueInEffect: false });
  const change = (part: Partial<Reading>) => {
    setReading({ ...stored, ...part });
    apply({ ...NONE, ...stored, ...part });
  };
  return [{ ...NONE, ...stored }, change];
}

/** To every text of the page, whether it is drawn already or not. */
function apply({ size, font, wrapCode }: Reading): void {
  const { style, dataset } = document.documentElement;
  style.setProperty("--text-size", String(size));
  dataset.textFont = font;
  if (wrapCode) dataset.wrapCode = "";
  else delete dataset.wrapCode;
  if (font === "dyslexia") void import("./dyslexiaFont");
}

try {
  apply({ ...NONE, ...(JSON.parse(localStorage.getItem(STORED) ?? "{}") as Partial<Reading>) });
} catch {
  // A browser that keeps nothing, or something else under the name: as the page is made.
}
