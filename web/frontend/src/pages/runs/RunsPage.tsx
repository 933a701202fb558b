import { Route, Routes } from "react-router";

import { Empty } from "../../components/States";
import { CompareRuns } from "./CompareRuns";
import { RunList } from "./RunList";
import { RunPage } from "./RunPage";

/** The area Runs: the list, one run, several side by side. */
export default function RunsPage() {
  return (
    <Routes>
      <Route index element={<RunList />} />
      <Route path="compare" element={<CompareRuns />} />
      <Route path=":id/*" element={<RunPage />} />
      <Route path="*" element={<Empty title="There is no such page" />} />
    </Routes>
  );
}
