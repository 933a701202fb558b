import { Anchor, Badge, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { Evidence } from "./Evidence";

type Benchmark = Schemas["LedgerBenchmark"];

/** Which benchmarks the prompts were checked against, with what outcome; the evidence of one check below. */
export function LedgerPage() {
  const query = useQuery({ queryKey: ["curate", "ledger"], queryFn: () => body(api.GET("/api/curate/contamination")) });
  const [address] = useSearchParams();
  return (
    <Loaded query={query}>
      {({ benchmarks }) => {
        if (benchmarks.length === 0)
          return (
            <Empty title={t("No benchmark is registered")}>
              {t("Upload its file and register it; then decontaminate checks the data against it.")}
              <StartHere actions={[["/jobs/new/benchmark", t("Register a benchmark")], ["/data/import", t("Upload a file")]]} />
            </Empty>
          );
        const checks = benchmarks.flatMap((one) => one.checks.map((check) => ({ ...check, benchmark: one.benchmark })));
        const chosen =
          checks.find(({ check_id }) => check_id === address.get("check")) ??
          [...checks].sort((one, other) => Number(other.hits > 0) - Number(one.hits > 0) || other.at - one.at)[0];
        return (
          <Stack gap="sm">
            <div className="panel">
              <Title order={2} mb={4}>{t("Ledger")}</Title>
              <LedgerTable benchmarks={benchmarks} chosen={chosen?.check_id ?? null} />
              <Waivers benchmarks={benchmarks} />
            </div>
            {chosen !== undefined && <Evidence key={chosen.check_id} check={chosen} benchmark={chosen.benchmark} />}
          </Stack>
        );
      }}
    </Loaded>
  );
}

function LedgerTable({ benchmarks, chosen }: { benchmarks: Benchmark[]; chosen: string | null }) {
  return (
    <Wide label={t("Ledger of contamination checks")}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("Benchmark")}</Table.Th>
            <Table.Th ta="right">{t("Its prompts")}</Table.Th>
            <Table.Th>{t("State")}</Table.Th>
            <Table.Th>{t("In common")}</Table.Th>
            <Table.Th ta="right">{t("Checked")}</Table.Th>
            <Table.Th ta="right">{t("Overlap")}</Table.Th>
            <Table.Th ta="right">{t("Comparisons")}</Table.Th>
            <Table.Th ta="right">{t("Discarded")}</Table.Th>
            <Table.Th>{t("When")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {benchmarks.flatMap((one) =>
            one.checks.length === 0
              ? [
                  <Table.Tr key={one.benchmark}>
                    <Table.Th scope="row" fw={500}>
                      {one.benchmark}
                    </Table.Th>
                    <Table.Td className="curate-number">{count(one.prompts)}</Table.Td>
                    <Table.Td colSpan={7}>
                      <Badge size="xs" radius="sm" variant="light" color="red">{t("not checked")}</Badge>
                    </Table.Td>
                  </Table.Tr>,
                ]
              : one.checks.map((check, index) => (
                  <Table.Tr key={check.check_id} aria-current={check.check_id === chosen ? "true" : undefined}>
                    <Table.Th scope="row" fw={500}>
                      {one.benchmark}
                    </Table.Th>
                    <Table.Td className="curate-number">{count(one.prompts)}</Table.Td>
                    <Table.Td>
                      <State check={check} newest={index === 0} />
                    </Table.Td>
                    <Table.Td>
                      {check.ngram} {check.unit}s
                    </Table.Td>
                    <Table.Td className="curate-number">{count(check.prompts)}</Table.Td>
                    <Table.Td className="curate-number">
                      {check.hits === 0 ? (
                        "0"
                      ) : (
                        <Anchor component={Link} to={`/curate/contamination?check=${check.check_id}`} size="sm">
                          {t("{{count}} texts", { count: check.hits })}
                        </Anchor>
                      )}
                    </Table.Td>
                    <Table.Td className="curate-number">{count(check.comparisons)}</Table.Td>
                    <Table.Td className="curate-number">{count(check.discarded)}</Table.Td>
                    <Table.Td>
                      <Anchor component={Link} to={`/runs/${check.run_id}`} size="sm">
                        {momentInWords(check.at)}
                      </Anchor>
                    </Table.Td>
                  </Table.Tr>
                )),
          )}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function State({ check, newest }: { check: Schemas["LedgerCheck"]; newest: boolean }) {
  const [colour, text] = !newest
    ? ["gray", "replaced"]
    : check.stale
      ? ["yellow", t("imports since: check again")]
      : check.hits === 0
        ? ["teal", "clean"]
        : check.discarded === check.comparisons
          ? ["teal", t("overlaps discarded")]
          : ["red", "overlaps"];
  return (
    <Badge size="xs" radius="sm" variant="light" color={colour}>
      {text}
    </Badge>
  );
}

function Waivers({ benchmarks }: { benchmarks: Benchmark[] }) {
  const waivers = benchmarks.flatMap((one) => one.waivers.map((waiver) => ({ ...waiver, benchmark: one.benchmark })));
  if (waivers.length === 0) return null;
  return (
    <Stack gap={2} mt="xs">
      <Text size="sm" fw={600}>{t("Waivers")}</Text>
      {waivers.map((one) => (
        <Group key={`${one.run_id} ${one.benchmark} ${one.data}`} gap={6}>
          <Text size="sm">
            {one.benchmark}, {one.state.replaceAll("_", " ")}: {one.reason}
          </Text>
          <Anchor component={Link} to={`/runs/${one.run_id}`} size="xs">
            {momentInWords(one.at)}
          </Anchor>
        </Group>
      ))}
    </Stack>
  );
}
