import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { figure } from "../../../format/figure";
import { t, textKey } from "../../../i18n";
import { Clip } from "../shared/Clip";
import { Loaded } from "../shared/Loaded";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { cutAround } from "./overlap";

type Overlap = Schemas["OverlapEvidence"];

const UNITS: Record<string, [string, string]> = {
  word: [textKey("word"), textKey("words")],
  character: [textKey("character"), textKey("characters")],
};
const PARTS: Record<string, string> = { prompt: textKey("prompt"), response: textKey("response") };

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
        {t("Evidence: {{texts}} with text of {{benchmark}}", { texts: t("{{count}} texts", { count: check.hits }), benchmark })}
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
      ? t("a short prompt, equal as a whole")
      : one.tier === "containment"
        ? t("holds {{round}} % of the {{part}}, from {{unit}} {{position}} on", { round: Math.round(100 * one.score), part: t(PARTS[one.part] ?? one.part), unit: t(UNITS[check.unit]?.[0] ?? check.unit), position: one.position })
        : one.tier === "embedding"
          ? t("an embedding of similarity {{score}}", { score: figure(one.score, 2) })
          : t("{{runs}} of {{ngram}} {{units}} in common, the first from {{unit}} {{position}} on", {
              runs: t("{{count}} sequences", { count: one.ngrams }),
              ngram: check.ngram,
              units: t(UNITS[check.unit]?.[1] ?? check.unit),
              unit: t(UNITS[check.unit]?.[0] ?? check.unit),
              position: one.position,
            });
  return (
    <div className="panel">
      <Group justify="space-between" gap="xs" mb={6}>
        <Text size="sm" fw={500} lineClamp={2} style={{ overflowWrap: "anywhere" }}>
          “{one.overlap}”
        </Text>
        <Group gap={8}>
          {one.comparisons.map(({ comparison_id, pool }) => (
            <Anchor key={comparison_id} component={Link} to={`/data/comparisons/${comparison_id}`} size="xs">
              {t("{{pool}} comparison", { pool })}
            </Anchor>
          ))}
        </Group>
      </Group>
      <Text size="xs" className="dim" mb={6}>
        {one.response_id === null ? t("Turn {{turn}} ({{role}})", { turn: one.turn, role: one.role }) : t("Response")}: {inCommon}
      </Text>
      <div className="curate-pair">
        <Marked label={one.response_id === null ? t("Our prompt") : t("Our response")} text={one.text} overlap={one.overlap} />
        <Marked label={one.part === "prompt" ? t("Prompt of {{benchmark}}", { benchmark }) : t("Response of {{benchmark}}", { benchmark })} text={one.benchmark_text} overlap={one.overlap} />
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
