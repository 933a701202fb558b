import { Anchor, Button, Group, MultiSelect, NumberInput, SegmentedControl, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { duration } from "../../../format/duration";
import { NONE } from "../../../format/none";
import { moment } from "../../../format/moment";
import { numberText, t } from "../../../i18n";

/** The first second of a day of the reader's, and of the day after; null for none. */
function dayOf(text: string, after = 0): number | null {
  const [year, month, day] = text.split("-").map(Number);
  if (year === undefined || month === undefined || day === undefined || Number.isNaN(year + month + day)) return null;
  return new Date(year, month - 1, day + after).getTime() / 1000;
}

/** Who worked how long on what, and what it comes to at a rate that is typed in here and stored nowhere. */
export function PayPage() {
  const [queues, setQueues] = useState<string[]>([]);
  const [first, setFirst] = useState("");
  const [last, setLast] = useState("");
  const [idle, setIdle] = useState(5);
  const [per, setPer] = useState<"hour" | "item">("hour");
  const [amount, setAmount] = useState<number | null>(null);
  const known = useQuery({ queryKey: ["queues"], queryFn: () => body(api.GET("/api/queues")) });
  const since = dayOf(first);
  const until = dayOf(last, 1);
  const query = {
    per,
    idle_s: 60 * idle,
    ...(queues.length > 0 ? { queue: queues } : {}),
    ...(since !== null ? { since } : {}),
    ...(until !== null ? { until } : {}),
    ...(amount !== null ? { amount } : {}),
  };
  const { data, failureReason: error } = useQuery({
    queryKey: ["pay", query],
    queryFn: () => body(api.GET("/api/pay", { params: { query } })),
    placeholderData: keepPreviousData,
  });
  const address = new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, String(one)])),
  );
  const money = (pay: number | null | undefined) => (pay == null ? NONE : numberText(pay, { minimumFractionDigits: 2, maximumFractionDigits: 2 }));
  return (
    <Stack gap="sm">
      <Title order={1}>
        <Anchor component={Link} to="/annotate" inherit c="inherit" underline="never" className="dim">
          {t("Annotate")}
        </Anchor>{" "}
        / {t("Working time")}
      </Title>
      <Group align="end" gap="sm" className="panel">
        <MultiSelect label={t("Queues")} placeholder={queues.length === 0 ? t("All") : undefined} data={(known.data ?? []).map(({ name, title }) => ({ value: name, label: title }))} value={queues} onChange={setQueues} w={240} searchable />
        <TextInput type="date" label={t("First day")} value={first} onChange={(event) => setFirst(event.currentTarget.value)} />
        <TextInput type="date" label={t("Last day")} value={last} onChange={(event) => setLast(event.currentTarget.value)} />
        <NumberInput label={t("Minutes of one answer that count, at most")} min={1} max={60} value={idle} onChange={(value) => setIdle(Number(value) || 5)} w={180} />
        <NumberInput label={t("Rate")} min={0} decimalScale={2} value={amount ?? ""} onChange={(value) => setAmount(value === "" ? null : Number(value))} w={110} />
        <SegmentedControl
          aria-label={t("Rate for")}
          value={per}
          onChange={(value) => setPer(value as typeof per)}
          data={[
            { value: "hour", label: t("an hour") },
            { value: "item", label: t("an item") },
          ]}
        />
        <Button component="a" href={`/api/pay.csv?${address.toString()}`} download variant="default" disabled={data === undefined || data.rows.length === 0}>
          {t("CSV file")}
        </Button>
      </Group>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : data.rows.length === 0 ? (
        <Empty title={t("Nobody has worked here in this time")}>{t("Choose other days or queues.")}</Empty>
      ) : (
        <>
          {error && <Failure error={error} />}
          <Wide label={t("Working time")}>
            <Table>
              <Table.Thead>
                <Table.Tr>
                  {[t("Annotator"), t("Queue"), t("Items"), t("Active time"), t("Items an hour"), t("Pay"), t("First"), t("Last")].map((name) => (
                    <Table.Th key={name}>{name}</Table.Th>
                  ))}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {data.rows.map(({ time, title, rate, pay }) => (
                  <Table.Tr key={`${time.annotator} ${time.queue}`}>
                    <Table.Th scope="row">{time.annotator}</Table.Th>
                    <Table.Td>{title}</Table.Td>
                    <Table.Td>{numberText(time.items)}</Table.Td>
                    <Table.Td>
                      {duration(time.seconds)}
                      {time.capped > 0 && (
                        <Text size="xs" c="orange">
                          {t("{{count}} answers cut, {{left}} left out", { count: time.capped, left: duration(time.idle) })}
                        </Text>
                      )}
                      {time.untimed > 0 && (
                        <Text size="xs" c="orange">
                          {t("{{count}} answers without a time", { count: time.untimed })}
                        </Text>
                      )}
                    </Table.Td>
                    <Table.Td>{rate === null ? NONE : numberText(rate, { maximumFractionDigits: 0 })}</Table.Td>
                    <Table.Td>{money(pay)}</Table.Td>
                    <Table.Td>{moment(time.first)}</Table.Td>
                    <Table.Td>{moment(time.last)}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
              <Table.Tfoot>
                <Table.Tr>
                  <Table.Th scope="row">{t("All")}</Table.Th>
                  <Table.Th />
                  <Table.Th>{numberText(data.items)}</Table.Th>
                  <Table.Th>{duration(data.seconds)}</Table.Th>
                  <Table.Th />
                  <Table.Th>{money(data.pay)}</Table.Th>
                  <Table.Th />
                  <Table.Th />
                </Table.Tr>
              </Table.Tfoot>
            </Table>
          </Wide>
          <Text size="xs" className="dim">
            {t("Active time is what the page recorded with each answer, gold checks, changed answers and adjudications included. Of one answer no more than {{minutes}} minutes count: somebody may have left the page open. What was cut is said. Items are different ones, answered or passed on.", { minutes: idle })}
          </Text>
        </>
      )}
    </Stack>
  );
}
