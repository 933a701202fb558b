import "./curate.css";

import { Stack, Title } from "@mantine/core";
import { Navigate, Route, Routes } from "react-router";

import { AreaTabs } from "../../components/AreaTabs";
import { Empty } from "../../components/States";
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
];

/** The area Curate: where the data went and why, how good everybody is, and starting the stages. */
export default function CuratePage() {
  return (
    <Stack gap="sm" className="curate">
      <Title order={1}>Curate</Title>
      <AreaTabs path="/curate" label="Curate" parts={PARTS}>
        <Parts />
      </AreaTabs>
    </Stack>
  );
}

function Parts() {
  return (
    <Routes>
      <Route index element={<Navigate to="/curate/funnel" replace />} />
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
      <Route path="*" element={<Empty title="There is no such page">Choose a part above.</Empty>} />
    </Routes>
  );
}
