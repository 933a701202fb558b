import "./curate.css";

import { Route } from "react-router";

import { AreaPage } from "../../components/AreaPage";
import { ConflictsPage } from "./conflicts/ConflictsPage";
import { LedgerPage } from "./contamination/LedgerPage";
import { DuplicatesPage } from "./duplicates/DuplicatesPage";
import { ErrorsPage } from "./errors/ErrorsPage";
import { FunnelPage } from "./funnel/FunnelPage";
import { RulePage } from "./funnel/RulePage";
import { ChoicesPage } from "./loops/ChoicesPage";
import { LoopsPage } from "./loops/LoopsPage";
import { QualityPage } from "./quality/QualityPage";
import { StagesPage } from "./stages/StagesPage";

const PARTS = [
  { value: "funnel", label: "Funnel" },
  { value: "stages", label: "Stages" },
  { value: "loops", label: "Loops" },
  { value: "quality", label: "Quality" },
  { value: "errors", label: "Errors" },
  { value: "conflicts", label: "Conflicts" },
  { value: "contamination", label: "Contamination" },
  { value: "near-duplicates", label: "Near-duplicates" },
] satisfies Parameters<typeof AreaPage>[0]["parts"];

/** The area Curate: where the data went and why, how good everybody is, and starting the stages. */
export default function CuratePage() {
  return (
    <AreaPage path="/curate" title="Curate" parts={PARTS} className="curate">
      <Route path="funnel" element={<FunnelPage />} />
      <Route path="funnel/:pool/:rule" element={<RulePage />} />
      <Route path="stages" element={<StagesPage />} />
      <Route path="loops" element={<LoopsPage />} />
      <Route path="loops/:loop/:iteration" element={<ChoicesPage />} />
      <Route path="quality" element={<QualityPage />} />
      <Route path="errors" element={<ErrorsPage />} />
      <Route path="conflicts" element={<ConflictsPage />} />
      <Route path="contamination" element={<LedgerPage />} />
      <Route path="near-duplicates" element={<DuplicatesPage />} />
    </AreaPage>
  );
}
