import "./curate.css";

import { Route } from "react-router";

import { AreaPage } from "../../components/AreaPage";
import { t, textKey } from "../../i18n";
import { ConflictsPage } from "./conflicts/ConflictsPage";
import { LedgerPage } from "./contamination/LedgerPage";
import { DuplicatesPage } from "./duplicates/DuplicatesPage";
import { ErrorsPage } from "./errors/ErrorsPage";
import { FunnelPage } from "./funnel/FunnelPage";
import { RulePage } from "./funnel/RulePage";
import { ChoicesPage } from "./loops/ChoicesPage";
import { LoopsPage } from "./loops/LoopsPage";
import { QualityPage } from "./quality/QualityPage";
import { StagesPage } from "./StagesPage";

const PARTS = [
  { value: "funnel", label: textKey("Funnel") },
  { value: "stages", label: textKey("Stages") },
  { value: "loops", label: textKey("Loops") },
  { value: "quality", label: textKey("Quality") },
  { value: "errors", label: textKey("Errors") },
  { value: "conflicts", label: textKey("Conflicts") },
  { value: "contamination", label: textKey("Contamination") },
  { value: "near-duplicates", label: textKey("Near-duplicates") },
] satisfies Parameters<typeof AreaPage>[0]["parts"];

/** The area Curate: where the data went and why, how good everybody is, and starting the stages. */
export default function CuratePage() {
  return (
    <AreaPage path="/curate" title={t("Curate")} parts={PARTS} className="curate">
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
