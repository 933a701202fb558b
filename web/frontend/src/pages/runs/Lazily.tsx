import { useEffect, useRef, useState, type ReactNode } from "react";

/** Drawn when it is about to be seen, and from then on. `at`: otherwise at once. */
export function Lazily({ height, at, children }: { height: number; at: boolean; children: ReactNode }) {
  const place = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(!at || typeof IntersectionObserver === "undefined");
  useEffect(() => {
    if (seen || place.current === null) return;
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && setSeen(true), { rootMargin: "400px" });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, [seen]);
  return seen ? <>{children}</> : <div ref={place} className="panel" style={{ height }} />;
}
