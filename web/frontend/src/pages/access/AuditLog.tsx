import { Button, Group, Select, Stack, Table, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { api, body } from "../../api/client";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { instant } from "../../format/moment";
import { t } from "../../i18n";

/** Stands for the empty name among the choices. */
const NOBODY = "\u0000";

/** Who changed what, when, from where; newest first. The filter is in the address. */
export function AuditLog() {
  const [address, setAddress] = useSearchParams();
  const by = address.get("by");
  const action = address.get("action");
  const subject = address.get("subject") ?? "";
  const { data, failureReason: error, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["audit", by, action, subject],
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/api/audit", {
          params: {
            query: {
              by: by ?? undefined,
              action: action ?? undefined,
              subject: subject || undefined,
              before: pageParam ?? undefined,
            },
          },
        }),
      ),
    initialPageParam: null as number | null,
    placeholderData: keepPreviousData, // what can be chosen stays while another choice is loaded
    getNextPageParam: (last) => (last.older ? last.lines.at(-1)?.id : undefined),
  });
  const choose = (name: string, value: string | null) =>
    setAddress(
      (now) => {
        if (value === null || (value === "" && name !== "by")) now.delete(name);
        else now.set(name, value);
        return now;
      },
      { replace: name === "subject" }, // typed
    );
  const lines = data?.pages.flatMap((page) => page.lines) ?? [];
  const names = data?.pages[0];
  return (
    <Stack gap="sm">
      <Group gap="sm" align="end">
        <Select
          label={t("Whose changes")}
          placeholder={t("Everybody's")}
          clearable
          clearButtonProps={{ "aria-label": t("Everybody's changes") }}
          searchable
          data={(names?.persons ?? []).map((name) => ({ value: name || NOBODY, label: name || t("(nobody signed in)") }))}
          value={by === "" ? NOBODY : by}
          onChange={(value) => choose("by", value === NOBODY ? "" : value)}
          w={190}
        />
        <Select
          label={t("Change")}
          placeholder={t("Every change")}
          clearable
          clearButtonProps={{ "aria-label": t("Every change") }}
          searchable
          data={(names?.actions ?? []).map((name) => ({ value: name, label: inWords(name) }))}
          value={action}
          onChange={(value) => choose("action", value)}
          w={210}
        />
        <SubjectFilter given={subject} onChange={(value) => choose("subject", value)} />
      </Group>
      {data === undefined && (error ? <Failure error={error} /> : <Waiting what={t("The log is loading")} />)}
      {data !== undefined && lines.length === 0 && (
        <Empty title={t("No such change")}>{t("Nothing in the log is as the filter asks.")}</Empty>
      )}
      {lines.length > 0 && (
        <Wide label={t("Audit log")}>
          <Table className="panel" miw={760}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("When")}</Table.Th>
                <Table.Th>{t("Who")}</Table.Th>
                <Table.Th>{t("What")}</Table.Th>
                <Table.Th miw={200}>{t("To what")}</Table.Th>
                <Table.Th>{t("More")}</Table.Th>
                <Table.Th>{t("From")}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {lines.map((line) => (
                <Table.Tr key={line.id}>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{instant(line.at)}</Table.Td>
                  <Table.Td>{line.person || <span className="dim">{t("nobody signed in")}</span>}</Table.Td>
                  <Table.Td>{inWords(line.action)}</Table.Td>
                  <Table.Td style={{ wordBreak: "break-word" }}>{line.subject}</Table.Td>
                  <Table.Td className="dim">{detailOf(line.detail)}</Table.Td>
                  <Table.Td className="dim">{line.address}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
      {hasNextPage && (
        <Group justify="center">
          <Button variant="default" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            {t("Older changes")}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

function SubjectFilter({ given: initial, onChange }: { given: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(initial);
  const [before, setBefore] = useState(initial);
  if (initial !== before) {
    setBefore(initial); // by the browser's Back
    setTyped(initial);
  }
  const later = useDebouncedCallback(onChange, 300);
  return (
    <TextInput
      label={t("To what")}
      placeholder={t("A part of it")}
      value={typed}
      onChange={(event) => {
        setTyped(event.currentTarget.value);
        later(event.currentTarget.value);
      }}
      w={190}
    />
  );
}

/** "cast_vote" as people say it; the names are the log's own, in every language. */
function inWords(action: string): string {
  return action.replaceAll("_", " ");
}

/** "role: curator, days: 7" of a line's JSON. */
function detailOf(detail: string): string {
  try {
    const fields = JSON.parse(detail) as Record<string, unknown>;
    return Object.entries(fields)
      .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
      .join(", ");
  } catch {
    return detail;
  }
}
