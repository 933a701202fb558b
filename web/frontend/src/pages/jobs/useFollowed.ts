import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import type { Schemas } from "../../api/client";
import type { Job } from "./useJobs";

const MOST = 400_000; // characters of output that are held

/** A job's output, and its record kept up to date, by server-sent events. `cut`: there is output before this. */
export function useFollowed(id: string, job: Job | undefined) {
  const queries = useQueryClient();
  const [state, setState] = useState({ id, text: "", cut: false });
  const [now, setNow] = useState(() => Date.now() / 1000);
  const known = job !== undefined;
  useEffect(() => {
    if (!known) return;
    const source = new EventSource(`/api/jobs/${encodeURIComponent(id)}/events`);
    source.addEventListener("log", ({ data }: MessageEvent<string>) => {
      const part = JSON.parse(data) as Schemas["LogPart"];
      setState((before) => {
        const text = (before.id === id ? before.text : "") + part.text;
        const first = before.id !== id || before.text === "";
        return { id, text: text.slice(-MOST), cut: (first ? part.start > 0 : before.cut) || text.length > MOST };
      });
    });
    source.addEventListener("job", ({ data }: MessageEvent<string>) => {
      const record = JSON.parse(data) as Job;
      setNow(Date.now() / 1000);
      queries.setQueryData(["jobs", "one", id], record);
      if (record.status !== "waiting" && record.status !== "running" && record.status !== "stopping") {
        void queries.invalidateQueries({ queryKey: ["jobs", "list"] });
      }
    });
    source.addEventListener("end", () => source.close());
    return () => source.close();
  }, [id, known, queries]);
  return { text: state.id === id ? state.text : "", cut: state.id === id && state.cut, now };
}
