import "@mantine/charts/styles.css";
import "./rewards.css";

import { Route } from "react-router";

import { AreaPage } from "../../components/AreaPage";
import { t, textKey } from "../../i18n";
import { StartMenu } from "../jobs/StartMenu";
import { CalibrationPage } from "./calibration/CalibrationPage";
import { DisagreementsPage } from "./disagreements/DisagreementsPage";
import { BoardPage } from "./leaderboards/BoardPage";
import { LeaderboardsPage } from "./leaderboards/LeaderboardsPage";
import { LengthPage } from "./length/LengthPage";
import { PlaygroundPage } from "./playground/PlaygroundPage";
import { ServedPage } from "./served/ServedPage";

const PARTS = [
  { value: "playground", label: textKey("Playground") },
  { value: "served", label: textKey("Served models") },
  { value: "leaderboards", label: textKey("Leaderboards") },
  { value: "calibration", label: textKey("Calibration") },
  { value: "length", label: textKey("Length bias") },
  { value: "disagreements", label: textKey("Disagreements") },
] satisfies Parameters<typeof AreaPage>[0]["parts"];

/** The area Rewards: ask models, compare them, see what their numbers are worth. */
export default function RewardsPage() {
  return (
    <AreaPage path="/rewards" title={t("Rewards")} parts={PARTS} actions={<StartMenu areas={["rewards"]} label={t("Train, evaluate, calibrate")} />}>
      <Route path="playground" element={<PlaygroundPage />} />
      <Route path="served" element={<ServedPage />} />
      <Route path="leaderboards" element={<LeaderboardsPage />} />
      <Route path="leaderboards/:bench" element={<BoardPage />} />
      <Route path="calibration" element={<CalibrationPage />} />
      <Route path="length" element={<LengthPage />} />
      <Route path="disagreements" element={<DisagreementsPage />} />
    </AreaPage>
  );
}
