import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Suspense, useEffect, type ReactNode } from "react";

import { api, body, setCsrf } from "../api/client";
import { CurrentSession } from "../api/session";
import { lazyPage } from "../components/lazyPage";
import { PageWaiting } from "../components/PageWaiting";
import { Failure, Waiting } from "../components/States";

const SignIn = lazyPage(async () => ({ default: (await import("../pages/access/SignIn")).SignIn }));

/** Loads the session; shows the sign-in page without one, otherwise the children. */
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
    // A request was refused for lack of a session: load the session again, which shows the sign-in page.
    return queries.getQueryCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "error") {
        const failed = event.action.error as { status?: number };
        if (failed.status === 401) void queries.invalidateQueries({ queryKey: ["session"] });
      }
    });
  }, [queries]);
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.name == null)
    return (
      <Suspense fallback={<PageWaiting />}>
        <SignIn openAccess={data.open_access} firstStart={data.first_start} provider={data.provider} />
      </Suspense>
    );
  return <CurrentSession value={data}>{children}</CurrentSession>;
}
