import { useEffect, useState } from "react";

const MOMENT_MS = 500;

/** Whether `going` is so, or was a moment ago: what is shown of it does not go and come again between two pages. */
export function useLasting(going: boolean): boolean {
  const [lasting, setLasting] = useState(going);
  if (going && !lasting) setLasting(true);
  useEffect(() => {
    if (going) return;
    const timer = setTimeout(() => setLasting(false), MOMENT_MS);
    return () => clearTimeout(timer);
  }, [going]);
  return going || lasting;
}
