import { fireEvent, screen } from "@testing-library/react";
import type { ReactElement } from "react";
import { Link } from "react-router";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { CurrentSession, type Session } from "../api/session";
import { QueueReport } from "../pages/annotate/queues/QueueReport";
import { Accounts } from "../pages/access/Accounts";
import { CalibrationPage } from "../pages/rewards/calibration/CalibrationPage";
import { DisagreementsPage } from "../pages/rewards/disagreements/DisagreementsPage";
import { LeaderboardsPage } from "../pages/rewards/leaderboards/LeaderboardsPage";
import { LengthPage } from "../pages/rewards/length/LengthPage";
import { RunList } from "../pages/runs/RunList";
import { renderAt } from "../testing/render";
import { SessionGate } from "./SessionGate";

const SESSION = { name: "ada", role: "curator", permissions: ["queues", "vote", "records", "curate"] } as unknown as Session;

beforeEach(() => {
  vi.stubGlobal("fetch", async () => Response.json({ code: "busy", detail: "assay data import holds the store" }, { status: 503 }));
});
afterEach(() => vi.unstubAllGlobals());

function asCurator(page: ReactElement): ReactElement {
  return <CurrentSession value={SESSION}>{page}</CurrentSession>;
}

const PAGES: [string, ReactElement][] = [
  ["who is signed in", <SessionGate>page</SessionGate>],
  ["a queue's report", <QueueReport />],
  ["accounts", <Accounts managed />],
  ["calibration", <CalibrationPage />],
  ["disagreements", <DisagreementsPage />],
  ["leaderboards", <LeaderboardsPage />],
  ["length", <LengthPage />],
  ["runs", asCurator(<RunList />)],
];

it("says so too where the rows of another filter are still shown", async () => {
  let busy = false;
  vi.stubGlobal("fetch", async () =>
    busy
      ? Response.json({ code: "busy", detail: "assay data import holds the store" }, { status: 503 })
      : Response.json({ runs: [], total: 0, kinds: [], held: null }),
  );
  renderAt(
    <>
      {asCurator(<RunList />)}
      <Link to="/?status=failed">failed ones</Link>
    </>,
    "/",
    true,
  );
  expect(await screen.findByText("0 runs")).toBeInTheDocument();
  busy = true;
  fireEvent.click(screen.getByText("failed ones"));
  expect(await screen.findByText("assay data import holds the store")).toBeInTheDocument();
});

it.each(PAGES)("says who holds the store, and that it is asked again: %s", async (_, page) => {
  renderAt(page, "/", true);
  expect(await screen.findByText("assay data import holds the store")).toBeInTheDocument();
  expect(screen.getByText("Trying again by itself.")).toBeInTheDocument();
});
