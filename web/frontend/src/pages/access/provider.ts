/** Of the address to which a sign-in that failed leads. */
export const PROBLEM = "sign-in";

/** Where the browser goes to sign in by the provider, and which page it comes back to. */
export function signInAddress(to: string): string {
  return `/api/session/oidc?to=${encodeURIComponent(to)}`;
}

/** This page's own address, without what an earlier attempt left in it. */
export function here(): string {
  const query = new URLSearchParams(window.location.search);
  query.delete(PROBLEM);
  const rest = query.toString();
  return window.location.pathname + (rest === "" ? "" : `?${rest}`);
}
