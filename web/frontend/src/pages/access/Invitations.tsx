import { Badge, Button, Group, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import type { Role } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { LinkDialog } from "./LinkDialog";
import { mayDo, roleChoices, roleName } from "./roles";

type Sent = Schemas["Invitation"];

/** Making a link, and the links that were made. `managed`: whether this server makes any. */
export function Invitations({ managed }: { managed: boolean }) {
  const queries = useQueryClient();
  const { data, failureReason: error } = useQuery({ queryKey: ["invitations"], queryFn: () => body(api.GET("/api/invitations")) });
  const withdraw = useMutation({
    mutationFn: (id: string) =>
      api.DELETE("/api/invitations/{invitation_id}", { params: { path: { invitation_id: id } } }),
    onSettled: () => queries.invalidateQueries({ queryKey: ["invitations"] }),
  });
  return (
    <Stack gap="sm">
      {managed && <NewInvitation />}
      {withdraw.error !== null && <Failure error={withdraw.error} />}
      {data === undefined && (error ? <Failure error={error} /> : <Waiting what={t("Invitations are loading")} />)}
      {data?.invitations.length === 0 && <Empty title={t("Nobody has been invited")}>{t("Links that you make are listed here.")}</Empty>}
      {data !== undefined && data.invitations.length > 0 && (
        <Wide label={t("Invitations")}>
          <Table className="panel" miw={600}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("For")}</Table.Th>
                <Table.Th>{t("State")}</Table.Th>
                <Table.Th>{t("Made")}</Table.Th>
                <Table.Th w={90} aria-label={t("Actions")} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.invitations.map((sent) => (
                <Table.Tr key={sent.id}>
                  <Table.Td>{sent.name === null ? t("a new account, {{role}}", { role: roleName(sent.role) }) : t("a new password of {{name}}", { name: sent.name })}</Table.Td>
                  <Table.Td>
                    <StateOf sent={sent} />
                  </Table.Td>
                  <Table.Td>
                    {moment(sent.created_at)} <span className="dim">{t("by {{created_by}}", { created_by: sent.created_by })}</span>
                  </Table.Td>
                  <Table.Td>
                    {managed && isOpen(sent) && (
                      <Button
                        variant="subtle"
                        color="gray"
                        size="compact-xs"
                        onClick={() => withdraw.mutate(sent.id)}
                        aria-label={t("Withdraw the link of {{created_at}}", { created_at: moment(sent.created_at) })}
                      >
                        {t("Withdraw")}
                      </Button>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </Stack>
  );
}

function NewInvitation() {
  const queries = useQueryClient();
  const [role, setRole] = useState<Role>("annotator");
  const [days, setDays] = useState("7");
  const [project, setProject] = useState("default");
  const [created, setMade] = useState<Schemas["LinkReply"] | null>(null);
  const invite = useMutation({
    mutationFn: () => body(api.POST("/api/invitations", { body: { role, days: Number(days), project } })),
    onSuccess: async (link) => {
      setMade(link);
      await queries.invalidateQueries({ queryKey: ["invitations"] });
    },
  });
  return (
    <Stack className="panel" gap="xs">
      <Group align="end" gap="sm">
        <Select
          label={t("Invite somebody as")}
          data={roleChoices()}
          value={role}
          allowDeselect={false}
          onChange={(value) => value !== null && setRole(value as Role)}
          w={150}
        />
        <Select
          label={t("The link is good for")}
          data={[1, 7, 30].map((number) => ({ value: String(number), label: t("{{count}} days", { count: number }) }))}
          value={days}
          allowDeselect={false}
          onChange={(value) => value !== null && setDays(value)}
          w={150}
        />
        <TextInput label={t("Project")} value={project} onChange={(event) => setProject(event.currentTarget.value)} w={150} />
        <Button onClick={() => invite.mutate()} loading={invite.isPending}>{t("Make a link")}</Button>
      </Group>
      <Text size="xs" className="dim">{t("They may {{do}}.", { do: mayDo(role) })}</Text>
      {invite.error !== null && <Failure error={invite.error} />}
      <LinkDialog made={created} onClose={() => setMade(null)} />
    </Stack>
  );
}

function isOpen(sent: Sent): boolean {
  return sent.used_at === null && sent.expires_at * 1000 > Date.now();
}

function StateOf({ sent }: { sent: Sent }) {
  if (sent.used_at !== null)
    return (
      <>{t("used by {{used_by}}, {{used_at}}", { used_by: sent.used_by, used_at: moment(sent.used_at) })}</>
    );
  if (!isOpen(sent)) return <span className="dim">{t("expired {{expires_at}}", { expires_at: moment(sent.expires_at) })}</span>;
  return (
    <>
      <Badge size="xs" variant="light">
        {t("open")}
      </Badge>{" "}
      {t("until {{moment}}", { moment: moment(sent.expires_at) })}
    </>
  );
}
