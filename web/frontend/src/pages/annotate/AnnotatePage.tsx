import "./annotate.css";

import { Route, Routes, useParams, useSearchParams } from "react-router";

import { useAllows, useSession } from "../../api/session";
import { lazyPage } from "../../components/lazyPage";
import { Empty } from "../../components/States";

// Who annotates loads nothing of the curator's side, and the other way round.
const NewQueue = lazyPage(async () => ({ default: (await import("./queues/NewQueue")).NewQueue }));
const QueueList = lazyPage(async () => ({ default: (await import("./queues/QueueList")).QueueList }));
const QueueReport = lazyPage(async () => ({ default: (await import("./queues/QueueReport")).QueueReport }));
const AnnotationSession = lazyPage(async () => ({ default: (await import("./session/AnnotationSession")).AnnotationSession }));

if (/^\/annotate\/queue\/[^/]+(\/adjudicate)?$/.test(window.location.pathname)) AnnotationSession.preload();

/** The area Annotate: queues, and a session at one of them. */
export default function AnnotatePage() {
  return (
    <Routes>
      <Route index element={<QueueList />} />
      <Route path="new" element={<QueueMaking />} />
      <Route path="queue/:queue" element={<SessionAt />} />
      <Route path="queue/:queue/adjudicate" element={<SessionAt adjudicating />} />
      <Route path="queue/:queue/report" element={<QueueReport />} />
      <Route path="*" element={<Empty title="There is no such page">Choose a queue under Annotate.</Empty>} />
    </Routes>
  );
}

function QueueMaking() {
  return useAllows("curate") ? <NewQueue /> : <Refused what="Making a queue takes the role curator" />;
}

function SessionAt({ adjudicating = false }: { adjudicating?: boolean }) {
  const { queue = "" } = useParams();
  const [search, setSearch] = useSearchParams();
  const { name } = useSession();
  const allowed = useAllows(adjudicating ? "curate" : "vote");
  if (!allowed) return <Refused what={adjudicating ? "Adjudicating takes the role curator" : "Voting takes the role annotator"} />;
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
      You are signed in as {name}, {role}. An admin can change that under Access.
    </Empty>
  );
}
