import { useEffect, useRef, useState, type RefObject } from "react";

/** Whether a text of the row (what has `data-cuts`) shows less than there is. Not asked while the row is opened. */
export function useCut(opened: boolean): { row: RefObject<HTMLTableRowElement | null>; cut: boolean } {
  const row = useRef<HTMLTableRowElement>(null);
  const [cut, setCut] = useState(false);
  useEffect(() => {
    const texts = [...(row.current?.querySelectorAll("[data-cuts]") ?? [])];
    if (opened || texts.length === 0) return;
    // The lines that fit depend on the width, so only what was laid out tells. One pixel: heights are rounded.
    const measure = () => setCut(texts.some((text) => text.scrollHeight > text.clientHeight + 1));
    measure();
    const observer = new ResizeObserver(measure);
    for (const text of texts) observer.observe(text);
    return () => observer.disconnect();
  });
  return { row, cut };
}
