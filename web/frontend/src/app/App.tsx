import { useQueryClient } from "@tanstack/react-query";
import { Suspense } from "react";
import { Route, Routes, useLocation } from "react-router";

import { useAllows, useSession } from "../api/session";
import { ErrorBoundary } from "../components/ErrorBoundary";
import { lazyPage } from "../components/lazyPage";
import { PageWaiting } from "../components/PageWaiting";
import { Empty } from "../components/States";
import { t } from "../i18n";
import { roleName } from "../pages/access/roles";
import { AREAS, FIRST_HOUR, HOME, type Area } from "./areas";
import { TabTitle } from "./PlaceNames";
import { SessionGate } from "./SessionGate";
import { Shell } from "./Shell";

const AcceptInvitation = lazyPage(async () => ({ default: (await import("../pages/access/AcceptInvitation")).AcceptInvitation }));
const PasswordPage = lazyPage(() => import("../pages/access/PasswordPage"));
const TokensPage = lazyPage(() => import("../pages/access/TokensPage"));

/** Every address and its page: an invitation's for anybody, the others for somebody who is signed in. */
export function App() {
  return (
    <ErrorBoundary what={t("This page")}>
      <TabTitle />
      <Routes>
        <Route
          path="/invitation"
          element={
            <Suspense fallback={<PageWaiting />}>
              <AcceptInvitation />
            </Suspense>
          }
        />
        <Route path="*" element={<Pages />} />
      </Routes>
    </ErrorBoundary>
  );
}

function AreaFor({ area }: { area: Area }) {
  const { name, role } = useSession();
  const allowed = useAllows(area.needs);
  const { pathname } = useLocation();
  const queries = useQueryClient();
  // What failed to be shown may be a reply that is held: the next attempt asks for it again.
  const forget = () => setTimeout(() => queries.removeQueries({ type: "inactive" }));
  if (allowed || area.needs !== "records")
    // the others say themselves what they take
    return (
      <ErrorBoundary what={t(area.label)} at={pathname} onFailure={forget}>
        {/* Of its own, for the navigation to show it: what surrounds all areas goes on showing the area before. */}
        <Suspense fallback={<PageWaiting />}>
          <area.page />
        </Suspense>
      </ErrorBoundary>
    );
  return (
    <Empty title={t("{{area}} is not for the role {{role}}", { area: t(area.label), role: roleName(role) })}>
      {t("You are signed in as {{name}}, {{role}}.", { name, role: roleName(role) })}{" "}
      {role === "annotator"
        ? t("Annotators see their queues alone, so that votes stay blind.")
        : t("An admin can change that under Access.")}
    </Empty>
  );
}

function Pages() {
  return (
    <SessionGate>
      <Shell>
        <Routes>
          {[HOME, FIRST_HOUR].map((area) => (
            <Route key={area.path} path={area.path} element={<AreaFor key={area.path} area={area} />} />
          ))}
          {AREAS.map((area) => (
            <Route key={area.path} path={`${area.path}/*`} element={<AreaFor key={area.path} area={area} />} />
          ))}
          <Route path="/password" element={<PasswordPage />} />
          <Route path="/tokens" element={<TokensPage />} />
          <Route path="*" element={<Empty title={t("There is no such page")}>{t("Choose an area at the left.")}</Empty>} />
        </Routes>
      </Shell>
    </SessionGate>
  );
}
