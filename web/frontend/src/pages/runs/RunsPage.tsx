import { Route, Routes } from "react-router";

import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { CompareRuns } from "./CompareRuns";
import { CompareSamples } from "./CompareSamples";
import { RunAlerts } from "./RunAlerts";
import { RunList } from "./RunList";
import { RunPage } from "./RunPage";

/** The area Runs: the list, one run, several side by side. */
export default function RunsPage() {
  return (
    <Routes>
      <Route index element={<RunList />} />
      <Route path="compare" element={<CompareRuns />} />
      <Route path="samples" element={<CompareSamples />} />
      <Route path="alerts" element={<RunAlerts />} />
      <Route path=":id/*" element={<RunPage />} />
      <Route path="*" element={<Empty title={t("There is no such page")} />} />
    </Routes>
  );
}
