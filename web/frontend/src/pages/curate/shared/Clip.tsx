import type { ReactNode } from "react";

/** Text that may be longer than its place: it scrolls by itself, with the keyboard too. */
export function Clip({ label, className = "", children }: { label: string; className?: string; children: ReactNode }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
    <div className={`curate-text curate-clip ${className}`} tabIndex={0} role="group" aria-label={label}>
      {children}
    </div>
  );
}
