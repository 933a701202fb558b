import "@mantine/charts/styles.css";
import "./rewards.css";

import { Stack, Title } from "@mantine/core";
import { Navigate, Route, Routes } from "react-router";

import { AreaTabs } from "../../components/AreaTabs";
import { Empty } from "../../components/States";
import { CalibrationPage } from "./calibration/CalibrationPage";
import { DisagreementsPage } from "./disagreements/DisagreementsPage";
import { BoardPage } from "./leaderboards/BoardPage";
import { LeaderboardsPage } from "./leaderboards/LeaderboardsPage";
import { LengthPage } from "./length/LengthPage";
import { PlaygroundPage } from "./playground/PlaygroundPage";

const PARTS = [
  { value: "playground", label: "Playground" },
  { value: "leaderboards", label: "Leaderboards" },
  { value: "calibration", label: "Calibration" },
  { value: "length", label: "Length bias" },
  { value: "disagreements", label: "Disagreements" },
];

/** The area Rewards: ask models, compare them, see what their numbers are worth. */
export default function RewardsPage() {
  return (
    <Stack gap="sm">
      <Title order={1}>Rewards</Title>
      <AreaTabs path="/rewards" label="Rewards" parts={PARTS}>
        <Parts />
      </AreaTabs>
    </Stack>
  );
}

function Parts() {
  return (
    <Routes>
      <Route index element={<Navigate to="/rewards/playground" replace />} />
      <Route path="playground" element={<PlaygroundPage />} />
      <Route path="leaderboards" element={<LeaderboardsPage />} />
      <Route path="leaderboards/:bench" element={<BoardPage />} />
      <Route path="calibration" element={<CalibrationPage />} />
      <Route path="length" element={<LengthPage />} />
      <Route path="disagreements" element={<DisagreementsPage />} />
      <Route path="*" element={<Empty title="There is no such page">Choose a part above.</Empty>} />
    </Routes>
  );
}
