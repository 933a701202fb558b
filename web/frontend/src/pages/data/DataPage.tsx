import { Route, Routes } from "react-router";

import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { ComparisonPage } from "./comparison/ComparisonPage";
import { ImportPage } from "./import/ImportPage";
import { LineagePage } from "./lineage/LineagePage";
import { Browser } from "./list/Browser";
import { TrainingSetsPage } from "./sets/TrainingSetsPage";
import "./data.css";

/** The area Data: the list of comparisons, one of them, the lineage of anything, training sets. */
export default function DataPage() {
  return (
    <Routes>
      <Route index element={<Browser />} />
      <Route path="import" element={<ImportPage />} />
      <Route path="comparisons/:id" element={<ComparisonPage />} />
      <Route path="training-sets" element={<TrainingSetsPage />} />
      <Route path="lineage/*" element={<LineagePage />} />
      <Route path="*" element={<Empty title={t("There is no such page")} />} />
    </Routes>
  );
}
