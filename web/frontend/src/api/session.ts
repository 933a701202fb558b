import { createContext, useContext } from "react";

import type { Schemas } from "./client";

export type Session = Schemas["SessionReply"];
export type Role = NonNullable<Session["role"]>;

const ROLES: Role[] = ["viewer", "annotator", "curator", "admin"];

/** The session of the pages below; `SessionGate` provides it. */
export const CurrentSession = createContext<Session | null>(null);

/** The signed-in person's session. Throws outside `SessionGate`. */
export function useSession(): Session & { name: string; role: Role } {
  const session = useContext(CurrentSession);
  if (session?.name == null || session.role == null) throw new Error("useSession outside SessionGate");
  return session as Session & { name: string; role: Role };
}

export function useAllows(needed: Role): boolean {
  return ROLES.indexOf(useSession().role) >= ROLES.indexOf(needed);
}
