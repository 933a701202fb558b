import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { counted } from "../../../format/count";
import { Clip } from "../shared/Clip";
import { Loaded } from "../shared/Loaded";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { cutAround } from "./overlap";

type Overlap = Schemas["OverlapEvidence"];

/** The overlaps of a check: our text and the benchmark's, with what is in common marked. */
export function Evidence({ check, benchmark }: { check: Schemas["LedgerCheck"]; benchmark: string }) {
  const [page, setPage] = usePage();
  const query = useQuery({
    queryKey: ["curate", "evidence", check.check_id, page],
    queryFn: () => body(api.GET("/api/curate/contamination/{check_id}", { params: { path: { check_id: check.check_id }, query: { page } } })),
    placeholderData: keepPreviousData,
    enabled: check.hits > 0,
  });
  if (check.hits === 0) return null;
  return (
    <Stack gap="xs">
      <Title order={2}>
        Evidence: {counted(check.hits, "text")} with text of {benchmark}
      </Title>
      <Loaded query={query}>
        {(data) => (
          <Stack gap="xs">
            {data.overlaps.map((one) => (
              <OverlapCard key={one.response_id ?? one.prompt_id} one={one} check={check} benchmark={benchmark} />
            ))}
            <Pager page={page} size={data.page_size} total={data.total} onPage={setPage} />
          </Stack>
        )}
      </Loaded>
    </Stack>
  );
}

function OverlapCard({ one, check, benchmark }: { one: Overlap; check: Schemas["LedgerCheck"]; benchmark: string }) {
  const inCommon =
    one.tier === "whole"
      ? "a short prompt, equal as a whole"
      : one.tier === "containment"
        ? `holds ${Math.round(100 * one.score)} % of the ${one.part}, from ${check.unit} ${one.position} on`
        : one.tier === "embedding"
          ? `an embedding of similarity ${one.score.toFixed(2)}`
          : `${counted(one.ngrams, "run")} of ${check.ngram} ${check.unit}s in common, the first from ${check.unit} ${one.position} on`;
  return (
    <div className="panel">
      <Group justify="space-between" gap="xs" mb={6}>
        <Text size="sm" fw={500} lineClamp={2} style={{ overflowWrap: "anywhere" }}>
          “{one.overlap}”
        </Text>
        <Group gap={8}>
          {one.comparisons.map(({ comparison_id, pool }) => (
            <Anchor key={comparison_id} component={Link} to={`/data/comparisons/${comparison_id}`} size="xs">
              {pool} comparison
            </Anchor>
          ))}
        </Group>
      </Group>
      <Text size="xs" className="dim" mb={6}>
        {one.response_id === null ? `Turn ${one.turn} (${one.role})` : "Response"}: {inCommon}
      </Text>
      <div className="curate-pair">
        <Marked label={one.response_id === null ? "Our prompt" : "Our response"} text={one.text} overlap={one.overlap} />
        <Marked label={`${one.part === "prompt" ? "Prompt" : "Response"} of ${benchmark}`} text={one.benchmark_text} overlap={one.overlap} />
      </div>
    </div>
  );
}

function Marked({ label, text, overlap }: { label: string; text: string; overlap: string }) {
  const cut = cutAround(text, overlap);
  return (
    <div className="curate-side">
      <Text size="xs" fw={600} className="dim">
        {label}
      </Text>
      <Clip label={label}>
        {cut === null ? (
          text
        ) : (
          <>
            {cut[0]}
            <mark>{cut[1]}</mark>
            {cut[2]}
          </>
        )}
      </Clip>
    </div>
  );
}
