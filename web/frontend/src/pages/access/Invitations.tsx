import { Badge, Button, Group, ScrollArea, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import type { Role } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { moment } from "../../format/moment";
import { LinkDialog } from "./LinkDialog";
import { mayDo, ROLES } from "./roles";

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
      {data === undefined && (error ? <Failure error={error} /> : <Waiting what="Invitations are loading" />)}
      {data?.invitations.length === 0 && <Empty title="Nobody has been invited">Links that you make are listed here.</Empty>}
      {data !== undefined && data.invitations.length > 0 && (
        <ScrollArea type="auto" offsetScrollbars="x" viewportProps={{ tabIndex: 0, "aria-label": "Invitations" }}>
          <Table className="panel" miw={600}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>For</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th>Made</Table.Th>
                <Table.Th w={90} aria-label="Actions" />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.invitations.map((sent) => (
                <Table.Tr key={sent.id}>
                  <Table.Td>{sent.name === null ? `a new ${sent.role}` : `a new password of ${sent.name}`}</Table.Td>
                  <Table.Td>
                    <StateOf sent={sent} />
                  </Table.Td>
                  <Table.Td>
                    {moment(sent.created_at)} <span className="dim">by {sent.created_by}</span>
                  </Table.Td>
                  <Table.Td>
                    {managed && isOpen(sent) && (
                      <Button
                        variant="subtle"
                        color="gray"
                        size="compact-xs"
                        onClick={() => withdraw.mutate(sent.id)}
                        aria-label={`Withdraw the link of ${moment(sent.created_at)}`}
                      >
                        Withdraw
                      </Button>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </ScrollArea>
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
          label="Invite somebody as"
          data={ROLES}
          value={role}
          allowDeselect={false}
          onChange={(value) => value !== null && setRole(value as Role)}
          w={150}
        />
        <Select
          label="The link is good for"
          data={[
            { value: "1", label: "1 day" },
            { value: "7", label: "7 days" },
            { value: "30", label: "30 days" },
          ]}
          value={days}
          allowDeselect={false}
          onChange={(value) => value !== null && setDays(value)}
          w={150}
        />
        <TextInput label="Project" value={project} onChange={(event) => setProject(event.currentTarget.value)} w={150} />
        <Button onClick={() => invite.mutate()} loading={invite.isPending}>
          Make a link
        </Button>
      </Group>
      <Text size="xs" className="dim">
        They may {mayDo(role)}.
      </Text>
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
      <>
        used by {sent.used_by}, {moment(sent.used_at)}
      </>
    );
  if (!isOpen(sent)) return <span className="dim">expired {moment(sent.expires_at)}</span>;
  return (
    <>
      <Badge size="xs" variant="light">
        open
      </Badge>{" "}
      until {moment(sent.expires_at)}
    </>
  );
}
