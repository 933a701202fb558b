import { Badge, Button, Code, ScrollArea, Table, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";
import { Failure, Waiting } from "../../components/States";
import { instant } from "../../format/moment";
import { t } from "../../i18n";
import { eventInWords } from "./NewWebhook";

type Delivery = Schemas["Delivery"];

const SOON_MS = 2_000;
const LATER_MS = 15_000;
const COLOURS: Record<Delivery["state"], string> = { waiting: "yellow", delivered: "green", failed: "red" };

/** What was sent to a webhook, when and where to, and why what failed did. */
export function Deliveries({ webhook }: { webhook: string }) {
  const queries = useQueryClient();
  const queryKey = ["webhooks", webhook, "deliveries"];
  const { data, failureReason: error } = useQuery({
    queryKey,
    queryFn: () => body(api.GET("/api/webhooks/{webhook_id}/deliveries", { params: { path: { webhook_id: webhook } } })),
    refetchInterval: ({ state }) => (state.data?.deliveries.some((one) => one.state === "waiting") ? SOON_MS : LATER_MS),
  });
  const again = useMutation({
    mutationFn: (id: number) => api.POST("/api/webhooks/deliveries/{delivery_id}/again", { params: { path: { delivery_id: id } } }),
    onSettled: () => queries.invalidateQueries({ queryKey }),
  });
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.deliveries.length === 0)
    return (
      <Text size="sm" className="dim">
        {t("Nothing has been sent yet.")}
      </Text>
    );
  return (
    <>
      {again.error !== null && <Failure error={again.error} />}
      <ScrollArea.Autosize mah={360} type="auto" offsetScrollbars viewportProps={{ tabIndex: 0, "aria-label": t("What was sent") }}>
        <Table miw={640}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("When")}</Table.Th>
              <Table.Th>{t("What")}</Table.Th>
              <Table.Th>{t("State")}</Table.Th>
              <Table.Th>{t("To")}</Table.Th>
              <Table.Th w={110} aria-label={t("Actions")} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.deliveries.map((one) => (
              <Table.Tr key={one.id}>
                <Table.Td>{instant(one.last_at ?? one.created_at)}</Table.Td>
                <Table.Td>
                  <details>
                    <summary>{eventInWords(one.type)}</summary>
                    <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                      {one.body}
                    </Code>
                  </details>
                </Table.Td>
                <Table.Td>
                  <Badge color={COLOURS[one.state]} variant="light">
                    {stateInWords(one)}
                  </Badge>
                  {one.error !== null && <Text size="xs">{one.error}</Text>}
                  {one.state === "waiting" && one.next_at !== null && one.attempts > 0 && (
                    <Text size="xs" className="dim">
                      {t("again {{at}}", { at: instant(one.next_at) })}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td>{one.address ?? ""}</Table.Td>
                <Table.Td>
                  {(one.state === "failed" || one.attempts > 0) && (
                    <Button size="compact-xs" variant="subtle" color="gray" loading={again.isPending && again.variables === one.id} onClick={() => again.mutate(one.id)}>
                      {t("Send again")}
                    </Button>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </ScrollArea.Autosize>
    </>
  );
}

function stateInWords(one: Delivery): string {
  return { waiting: t("waiting"), delivered: t("taken"), failed: t("failed") }[one.state];
}
