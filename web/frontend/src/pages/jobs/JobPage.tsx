import { Anchor, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { api, body } from "../../api/client";
import { Loaded } from "../curate/shared/Loaded";
import { t } from "../../i18n";
import { JobCard } from "./JobCard";
import { JobLog } from "./JobLog";
import { JobScores } from "./JobScores";
import { useFollowed } from "./useFollowed";
import { titleOf } from "./words";

/** One job: how it stands, and what its command says, as it says it. */
export function JobPage() {
  const { job = "" } = useParams();
  const query = useQuery({ queryKey: ["jobs", "one", job], queryFn: () => body(api.GET("/api/jobs/{job_id}", { params: { path: { job_id: job } } })) });
  const { text, cut, now } = useFollowed(job, query.data);
  return (
    <Stack gap="sm">
      <Anchor component={Link} to="/jobs" size="sm">
        {t("All jobs")}
      </Anchor>
      <Loaded query={query}>
        {(record) => (
          <>
            <Title order={1}>{titleOf(record.kind, record.title)}</Title>
            <JobCard job={record} now={now} linked={false} />
            {record.kind === "score" && <JobScores job={record} />}
            <Title order={2}>{t("Output")}</Title>
            {text === "" ? <Text className="dim">{t("Nothing yet.")}</Text> : <JobLog text={text} cut={cut} />}
          </>
        )}
      </Loaded>
    </Stack>
  );
}
