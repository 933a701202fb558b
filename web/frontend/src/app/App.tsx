import { lazy } from "react";
import { Navigate, Route, Routes } from "react-router";

import { useAllows, useSession } from "../api/session";
import { Empty } from "../components/States";
import { AcceptInvitation } from "../pages/access/AcceptInvitation";
import { AREAS, type Area } from "./areas";
import { SessionGate } from "./SessionGate";
import { Shell } from "./Shell";

const PasswordPage = lazy(() => import("../pages/access/PasswordPage"));

/** Every address and its page: an invitation's for anybody, the others for somebody who is signed in. */
export function App() {
  return (
    <Routes>
      <Route path="/invitation" element={<AcceptInvitation />} />
      <Route path="*" element={<Pages />} />
    </Routes>
  );
}

function AreaFor({ area }: { area: Area }) {
  const { name, role } = useSession();
  const allowed = useAllows(area.needs);
  if (allowed || area.needs !== "records") return <area.page />; // the others say themselves what they take
  return (
    <Empty title={`${area.label} is not for the role ${role}`}>
      You are signed in as {name}, {role}.{" "}
      {role === "annotator"
        ? "Annotators see their queues alone, so that votes stay blind."
        : "An admin can change that under Access."}
    </Empty>
  );
}

function Pages() {
  return (
    <SessionGate>
      <Shell>
        <Routes>
          <Route path="/" element={<Navigate to="/annotate" replace />} />
          {AREAS.map((area) => (
            <Route key={area.path} path={`${area.path}/*`} element={<AreaFor area={area} />} />
          ))}
          <Route path="/password" element={<PasswordPage />} />
          <Route path="*" element={<Empty title="There is no such page">Choose an area at the left.</Empty>} />
        </Routes>
      </Shell>
    </SessionGate>
  );
}
