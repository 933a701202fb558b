import { Button, Group, Pagination, Select, SimpleGrid, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { poolChoices } from "../../../components/PoolBadge";
import { useAllows } from "../../../api/session";
import { StartHere } from "../../../components/StartHere";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { useKept } from "../playground/draft";
import { AgreementSummary } from "./AgreementSummary";
import { PairCard } from "./PairCard";
import { SendDialog } from "./SendDialog";

type Rater = Schemas["RaterEntry"];
type Order = "both" | "first" | "second";
type Supports = Schemas["DisagreedPair"]["supports"];

/** Pairs on which two models prefer different responses. Models, order, filters and page are in the address. */
export function DisagreementsPage() {
  const [search, setSearch] = useSearchParams();
  const { data, failureReason: error } = useQuery({ queryKey: ["rewards", "raters"], queryFn: () => body(api.GET("/api/rewards/raters")) });
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  const { raters, start } = data;
  if (raters.length < 2)
    return (
      <Empty title={t("Two models are needed that rated the same pairs")}>
        {t("Score the responses of a file with each, and keep the scores.")}
        <StartHere actions={[["/jobs/new/score?save=true", t("Score responses")], ["/data/import", t("Upload a file")]]} />
      </Empty>
    );
  const raterOf = (reference: string | null | undefined, among: Rater[]) => among.find((rater) => rater.reference === reference);
  const first = raterOf(search.get("first"), raters) ?? raterOf(start?.[0], raters) ?? raters[0]!;
  const candidates = raters.filter(({ reference }) => reference !== first.reference);
  // Beside the first, whichever it is, the other one of the two that share the most.
  const second = raterOf(search.get("second"), candidates) ?? raterOf(start?.[1], candidates) ?? raterOf(start?.[0], candidates) ?? candidates[0]!;
  const change = (changed: Record<string, string | null>) => {
    const next = new URLSearchParams(search);
    for (const [name, value] of Object.entries({ page: null, ...changed })) {
      if (value === null) next.delete(name);
      else next.set(name, value);
    }
    setSearch(next);
  };
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
        <RaterSelect label={t("First")} raters={raters} value={first} onChange={(reference) => change({ first: reference })} />
        <RaterSelect label={t("Second")} raters={candidates} value={second} onChange={(reference) => change({ first: first.reference, second: reference })} />
      </SimpleGrid>
      <AgreementSummary first={first} second={second} />
      <Pairs key={`${first.reference}\n${second.reference}`} first={first} second={second} search={search} change={change} />
    </Stack>
  );
}

function RaterSelect({ label, raters, value, onChange }: { label: string; raters: Rater[]; value: Rater; onChange: (reference: string) => void }) {
  const raterOf = (rater: Rater) =>
    `${rater.name}, ${rater.kind === "scores" ? t("scores of {{responses}}", { responses: t("{{count}} responses", { count: rater.rated }) }) : `${rater.kind.replace("_", " ")}, ${t("{{count}} pairs", { count: rater.rated })}`}`;
  return (
    <Select
      label={label}
      searchable
      allowDeselect={false}
      data={raters.map((rater) => ({ value: rater.reference, label: raterOf(rater) }))}
      value={value.reference}
      onChange={(reference) => reference !== null && onChange(reference)}
    />
  );
}

const POOLS = ["gold", "silver", "recycled", "pending", "discarded", "unverified"];

function Pairs({
  first,
  second,
  search,
  change,
}: {
  first: Rater;
  second: Rater;
  search: URLSearchParams;
  change: (changed: Record<string, string | null>) => void;
}) {
  const curator = useAllows("curate");
  const [picked, setPicked] = useKept<string[]>(`assay.rewards.picked ${first.reference} ${second.reference}`, []);
  const [sending, setSending] = useState(false);
  const order = (search.get("order") ?? "both") as Order;
  const pool = search.get("pool");
  const supports = search.get("supports") as Supports | null;
  const page = Math.max(1, Number(search.get("page")) || 1);
  const query = { first: first.reference, second: second.reference, order, pool, supports, page };
  const agreement = useQuery({
    queryKey: ["rewards", "disagreements", query],
    queryFn: () => body(api.GET("/api/rewards/disagreements", { params: { query } })),
    placeholderData: (before) => before,
  });
  const { data } = agreement;
  const pick = (id: string) => setPicked(picked.includes(id) ? picked.filter((other) => other !== id) : [...picked, id]);
  const here = data?.pairs.map(({ comparison_id }) => comparison_id) ?? [];
  const all = here.length > 0 && here.every((id) => picked.includes(id));
  return (
    <Stack gap="sm">
      <Group gap="xs" align="end">
        <Select
          label={t("Sorted by")}
          data={[
            { value: "both", label: t("how sure both are") },
            { value: "first", label: t("margin of the first") },
            { value: "second", label: t("margin of the second") },
          ]}
          value={order}
          onChange={(value) => change({ order: value })}
          allowDeselect={false}
          w={170}
        />
        <Select label={t("Pool")} placeholder={t("any")} clearable data={poolChoices(POOLS)} value={pool} onChange={(value) => change({ pool: value })} w={130} />
        <Select
          label={t("Label supports")}
          placeholder={t("any or none")}
          clearable
          data={[
            { value: "first", label: t("the first") },
            { value: "second", label: t("the second") },
            { value: "unlabelled", label: t("neither") },
          ]}
          value={supports}
          onChange={(value) => change({ supports: value })}
          w={130}
        />
        {curator && (
          <Group gap={6} ml="auto">
            <Button
              variant="default"
              disabled={here.length === 0}
              onClick={() => setPicked(all ? picked.filter((id) => !here.includes(id)) : [...new Set([...picked, ...here])])}
            >
              {all ? t("Unselect this page") : t("Select this page")}
            </Button>
            <Button disabled={picked.length === 0} onClick={() => setSending(true)}>
              {t("Send {{picked}} to a queue", { picked: picked.length })}
            </Button>
          </Group>
        )}
      </Group>
      {agreement.failureReason !== null && <Failure error={agreement.failureReason} />}
      {data === undefined ? (
        agreement.failureReason === null && <Waiting />
      ) : data.total === 0 ? (
        <Empty title={page > 1 ? t("There is no such page") : t("They do not disagree on any such pair")}>
          {page > 1 ? <Button variant="default" onClick={() => change({ page: null })}>{t("First page")}</Button> : t("Both must have rated a pair, and prefer different responses of it.")}
        </Empty>
      ) : (
        <>
          {data.pairs.map((pair) => (
            <PairCard
              key={pair.comparison_id}
              pair={pair}
              first={first.name}
              second={second.name}
              picked={picked.includes(pair.comparison_id)}
              onPick={curator ? () => pick(pair.comparison_id) : undefined}
            />
          ))}
          <Group justify="space-between">
            <Text size="xs" className="dim" role="status">
              {t("{{count}} pairs", { count: data.total })}
            </Text>
            <Pagination
              size="sm"
              total={Math.ceil(data.total / data.page_size)}
              value={page}
              onChange={(to) => {
                change({ page: String(to) });
                window.scrollTo({ top: 0 });
              }}
              getControlProps={(control) => ({ "aria-label": t("{{control}} page", { control }) })}
              getItemProps={(item) => ({ "aria-label": t("Page {{item}}", { item }) })}
            />
          </Group>
        </>
      )}
      <SendDialog
        opened={sending}
        onClose={() => setSending(false)}
        first={first}
        second={second}
        picked={picked}
        onSent={() => setPicked([])}
      />
    </Stack>
  );
}
