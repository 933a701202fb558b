import { lazy } from "react";
import { Navigate, Route, Routes } from "react-router";

import { Empty } from "../components/States";
import { AcceptInvitation } from "../pages/access/AcceptInvitation";
import { AREAS } from "./areas";
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

function Pages() {
  return (
    <SessionGate>
      <Shell>
        <Routes>
          <Route path="/" element={<Navigate to="/annotate" replace />} />
          {AREAS.map((area) => (
            <Route key={area.path} path={`${area.path}/*`} element={<area.page />} />
          ))}
          <Route path="/password" element={<PasswordPage />} />
          <Route path="*" element={<Empty title="There is no such page">Choose an area at the left.</Empty>} />
        </Routes>
      </Shell>
    </SessionGate>
  );
}
