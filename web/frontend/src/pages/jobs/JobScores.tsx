import { Button, Group, Pagination, Table, Text, Title } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import { Failure } from "../../components/States";
import { Wide } from "../../components/Wide";
import { figure } from "../../format/figure";
import { NONE } from "../../format/none";
import { t } from "../../i18n";
import { goesOn, type Job } from "./useJobs";

const PAGE = 50;

/** What a job that scores responses has written so far, a page of its lines at a time; nothing where it wrote no lines. */
export function JobScores({ job }: { job: Job }) {
  const [page, setPage] = useState(1);
  const query = useQuery({
    queryKey: ["jobs", "scores", job.id, page, goesOn(job)],
    queryFn: () => body(api.GET("/api/jobs/{job_id}/scores", { params: { path: { job_id: job.id }, query: { offset: (page - 1) * PAGE, limit: PAGE } } })),
    refetchInterval: goesOn(job) ? 5000 : false,
    placeholderData: keepPreviousData,
  });
  if (query.data === undefined) return query.failureReason === null ? null : <Failure error={query.failureReason} />;
  const { scores, lines, damaged } = query.data;
  if (lines + damaged === 0) return null;
  return (
    <>
      <Group justify="space-between">
        <Title order={2}>{t("Scores")}</Title>
        <Button component="a" href={`/api/jobs/${job.id}/scores.jsonl`} download variant="default" size="compact-sm" leftSection={<IconDownload size={14} />}>
          {t("Download JSONL")}
        </Button>
      </Group>
      <Wide label={t("Scores")}>
        <Table withTableBorder miw={560}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th ta="right">{t("Line")}</Table.Th>
              <Table.Th>{t("Response")}</Table.Th>
              <Table.Th ta="right">{t("Reward")}</Table.Th>
              <Table.Th>{t("Number format")}</Table.Th>
              <Table.Th>{t("Failure")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {scores.map((one, number) => (
              <Table.Tr key={`${one.row} ${number}`}>
                <Table.Td ta="right">{one.row}</Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere", maxWidth: 420 }}>
                  <Text size="sm" lineClamp={3} dir="auto" title={one.response ?? undefined}>
                    {one.response ?? one.id ?? NONE}
                  </Text>
                </Table.Td>
                <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
                  {figure(one.reward, 4)}
                  {one.uncertainty !== null && ` ± ${figure(one.uncertainty)}`}
                </Table.Td>
                <Table.Td>{one.dtype ?? NONE}</Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere", maxWidth: 280 }}>{one.error ?? (one.truncated ? t("truncated") : "")}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Group justify="space-between">
        <Text size="xs" className="dim" role="status">
          {t("{{count}} lines", { count: lines })}
          {damaged > 0 && `, ${t("{{count}} damaged lines left out", { count: damaged })}`}
        </Text>
        {lines > PAGE && (
          <Pagination
            size="sm"
            total={Math.ceil(lines / PAGE)}
            value={page}
            onChange={setPage}
            getControlProps={(control) => ({ "aria-label": t("{{control}} page", { control }) })}
            getItemProps={(item) => ({ "aria-label": t("Page {{item}}", { item }) })}
          />
        )}
      </Group>
    </>
  );
}
