import "./annotate.css";

import { Suspense, type ComponentProps } from "react";
import { Trans } from "react-i18next";
import { Route, Routes, useParams, useSearchParams } from "react-router";

import { useAllows, useSession } from "../../api/session";
import { lazyPage } from "../../components/lazyPage";
import { PageWaiting } from "../../components/PageWaiting";
import { Empty } from "../../components/States";
import { t } from "../../i18n";

// Who annotates loads nothing of the curator's side, and the other way round.
const QueueList = lazyPage(async () => ({ default: (await import("./queues/QueueList")).QueueList }));
const AnnotationSession = lazyPage(async () => ({ default: (await import("./session/AnnotationSession")).AnnotationSession }));

if (/^\/annotate\/queue\/[^/]+(\/adjudicate)?$/.test(window.location.pathname)) AnnotationSession.preload();

const CuratorPages = lazyPage(() => import("./queues/CuratorPages"));

/** The area Annotate: queues, and a session at one of them. */
export default function AnnotatePage() {
  return (
    <Routes>
      <Route index element={<QueueList />} />
      <Route path="new" element={<Curating page="new" />} />
      <Route path="queue/:queue" element={<SessionAt />} />
      <Route path="queue/:queue/adjudicate" element={<SessionAt adjudicating />} />
      <Route path="pay" element={<Curating page="pay" />} />
      <Route path="queue/:queue/settings" element={<Curating page="settings" />} />
      <Route path="queue/:queue/items" element={<Curating page="items" />} />
      <Route path="queue/:queue/notes" element={<Curating page="notes" />} />
      <Route path="queue/:queue/report" element={<Curating page="report" />} />
      <Route path="*" element={<Empty title={t("There is no such page")}>{t("Choose a queue under Annotate.")}</Empty>} />
    </Routes>
  );
}

function Curating({ page }: ComponentProps<typeof CuratorPages>) {
  if (!useAllows("curate")) return <Refused what={t("Running a queue takes the role curator")} />;
  return (
    <Suspense fallback={<PageWaiting />}>
      <CuratorPages page={page} />
    </Suspense>
  );
}

function SessionAt({ adjudicating = false }: { adjudicating?: boolean }) {
  const { queue = "" } = useParams();
  const [search, setSearch] = useSearchParams();
  const { name } = useSession();
  const allowed = useAllows(adjudicating ? "curate" : "vote");
  if (!allowed) return <Refused what={adjudicating ? t("Adjudicating takes the role curator") : t("Voting takes the role annotator")} />;
  // Another queue or person begins anew.
  const wanted = Number(search.get("item")) || null;
  return (
    <AnnotationSession
      key={`${name} ${queue} ${adjudicating}`}
      queue={queue}
      person={name}
      adjudicating={adjudicating}
      wanted={adjudicating ? null : wanted}
      onLeft={() => setSearch({}, { replace: true })}
    />
  );
}

function Refused({ what }: { what: string }) {
  const { name, role } = useSession();
  return (
    <Empty title={what}>
      <Trans i18nKey="You are signed in as {{name}}, {{role}}. An admin can change that under Access." values={{ name, role }} />
    </Empty>
  );
}
