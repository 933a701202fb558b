import "./curate.css";

import { Stack, Tabs, Title } from "@mantine/core";
import { Navigate, Route, Routes, useLocation, useNavigate } from "react-router";

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
  const navigate = useNavigate();
  const part = useLocation().pathname.split("/")[2] ?? "";
  const known = PARTS.some(({ value }) => value === part);
  return (
    <Stack gap="sm" className="curate">
      <Title order={1}>Curate</Title>
      <Tabs value={known ? part : null} onChange={(value) => value !== null && void navigate(`/curate/${value}`)} keepMounted={false}>
        <div className="curate-tabs">
          <Tabs.List aria-label="Curate">
            {PARTS.map(({ value, label }) => (
              <Tabs.Tab key={value} value={value}>
                {label}
              </Tabs.Tab>
            ))}
          </Tabs.List>
        </div>
        {PARTS.map(({ value }) => (
          <Tabs.Panel key={value} value={value} pt="sm">
            {value === part && <Parts />}
          </Tabs.Panel>
        ))}
      </Tabs>
      {!known && <Parts />}
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
