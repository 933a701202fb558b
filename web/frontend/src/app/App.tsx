import { Navigate, Route, Routes } from "react-router";

import { Empty } from "../components/States";
import { AREAS } from "./areas";
import { SessionGate } from "./session";
import { Shell } from "./Shell";

/** Every address and its page, for somebody who is signed in. */
export function App() {
  return (
    <SessionGate>
      <Shell>
        <Routes>
          <Route path="/" element={<Navigate to="/annotate" replace />} />
          {AREAS.map((area) => (
            <Route key={area.path} path={`${area.path}/*`} element={<area.page />} />
          ))}
          <Route path="*" element={<Empty title="There is no such page">Choose an area at the left.</Empty>} />
        </Routes>
      </Shell>
    </SessionGate>
  );
}
