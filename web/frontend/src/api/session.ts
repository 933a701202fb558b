import { createContext, useContext } from "react";

import type { Schemas } from "./client";

export type Session = Schemas["SessionReply"];
export type Role = NonNullable<Session["role"]>;

export type Permission = Session["permissions"][number];

/** The session of the pages below; `SessionGate` provides it. */
export const CurrentSession = createContext<Session | null>(null);

/** The signed-in person's session. Throws outside `SessionGate`. */
export function useSession(): Session & { name: string; role: Role } {
  const session = useContext(CurrentSession);
  if (session?.name == null || session.role == null) throw new Error("useSession outside SessionGate");
  return session as Session & { name: string; role: Role };
}

/** Whether the server lets this person see or do it; the server decides, and refuses what the page would ask besides. */
export function useAllows(needed: Permission): boolean {
  return useSession().permissions.includes(needed);
}
