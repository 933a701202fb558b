import "./Wide.css";

import type { ReactNode } from "react";

/** A table that may be wider than the page: it scrolls by itself, with the keyboard too. */
export function Wide({ label, children }: { label: string; children: ReactNode }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
    <div className="wide-table" role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}
