import { Button, Checkbox, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { JobCard } from "../jobs/JobCard";
import { goesOn, useJobs } from "../jobs/useJobs";

const FILE = "sample.jsonl";

/** Data made on the spot: prompts with constraints that can be checked, answered by a small language model. */
export function SampleStep() {
  const queries = useQueryClient();
  const [quick, setQuick] = useState(false);
  const uploads = useQuery({ queryKey: ["uploads"], queryFn: () => body(api.GET("/api/uploads")), refetchInterval: 3000 });
  const jobs = useJobs(["data"], 20);
  const job = jobs.data?.jobs.find(({ kind }) => kind === "sample");
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/jobs", { body: { kind: "sample", settings: { data: `uploads/${FILE}`, quick }, token: null } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["jobs"] }),
  });
  const made = uploads.data?.files.some(({ name }) => name === FILE) ?? false;
  if (made)
    return (
      <Button component={Link} to={`/data/import?file=uploads/${FILE}`} mt="xs">
        {t("Import the sample")}
      </Button>
    );
  if (job !== undefined && goesOn(job)) return <JobCard job={job} now={jobs.data?.now ?? 0} />;
  return (
    <Stack gap={6} mt="xs" align="start">
      <Group gap="md">
        <Button onClick={() => make.mutate()} loading={make.isPending} disabled={uploads.data === undefined}>
          {t("Make a sample")}
        </Button>
        <Checkbox size="sm" checked={quick} onChange={(event) => setQuick(event.currentTarget.checked)} label={t("only random characters, in seconds")} />
      </Group>
      <Text size="xs" className="dim">
        {t("A small language model answers 96 prompts on this machine, which takes a minute or two; three simulated people label the answers, not all of them well.")}
      </Text>
      {job?.status === "failed" && <Text size="sm" c="red">{job.why}</Text>}
      {make.error !== null && <Failure error={make.error} />}
    </Stack>
  );
}
