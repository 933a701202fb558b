import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, type ReactNode } from "react";

import { api, body, setCsrf, type Schemas } from "../api/client";
import { Failure, Waiting } from "../components/States";
import { SignIn } from "../pages/access/SignIn";

export type Session = Schemas["SessionReply"];
export type Role = NonNullable<Session["role"]>;

const ROLES: Role[] = ["viewer", "annotator", "curator", "admin"];
const Current = createContext<Session | null>(null);

/** Who is signed in; pages are only shown to somebody who is. */
export function useSession(): Session & { name: string; role: Role } {
  const session = useContext(Current);
  if (session?.name == null || session.role == null) throw new Error("no session here");
  return session as Session & { name: string; role: Role };
}

export function useAllows(needed: Role): boolean {
  return ROLES.indexOf(useSession().role) >= ROLES.indexOf(needed);
}

/** Asks who is signed in; shows the sign-in page to nobody in particular, else the pages. */
export function SessionGate({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const { data, failureReason: error } = useQuery({
    queryKey: ["session"],
    queryFn: () => body(api.GET("/api/session")),
    staleTime: 60_000,
  });
  const csrf = data?.csrf ?? null;
  setCsrf(csrf);
  useEffect(() => {
    // A request that found no session: ask again who is signed in, which shows the sign-in page.
    return queries.getQueryCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "error") {
        const failed = event.action.error as { status?: number };
        if (failed.status === 401) void queries.invalidateQueries({ queryKey: ["session"] });
      }
    });
  }, [queries]);
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.name == null) return <SignIn openAccess={data.open_access} firstStart={data.first_start} />;
  return <Current value={data}>{children}</Current>;
}
