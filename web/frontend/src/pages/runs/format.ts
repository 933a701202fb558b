import type { Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";

export type RunRow = Schemas["RunRow"];
export type Status = RunRow["status"];

/** Whether the run may still change. */
export function goesOn(status: Status): boolean {
  return status === "running" || status === "ending";
}

export function figure(keyFigure: Schemas["KeyFigure"] | null | undefined): string {
  return keyFigure == null ? "" : `${keyFigure.label} ${formatNumber(keyFigure.value, keyFigure.share)}`;
}

/** What people call the run: the name of what it makes, else its kind. */
export function title(run: RunRow): string {
  return run.name ?? run.kind;
}
