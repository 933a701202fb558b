import { ActionIcon, Badge, Menu, Select, Stack, Table, Text } from "@mantine/core";
import { IconDots, IconKey, IconUserCheck, IconUserOff } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { useSession, type Role } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { DisableDialog } from "./DisableDialog";
import { LinkDialog } from "./LinkDialog";
import { roleChoices } from "./roles";

type Account = Schemas["Account"];
type Change = { name: string } & Schemas["AccountChange"];

/** Who may sign in, as what, and since when. `managed`: whether this server lets them be changed. */
export function Accounts({ managed }: { managed: boolean }) {
  const queries = useQueryClient();
  const [disabling, setDisabling] = useState<string | null>(null);
  const [link, setLink] = useState<Schemas["LinkReply"] | null>(null);
  const { data, failureReason: error } = useQuery({ queryKey: ["accounts"], queryFn: () => body(api.GET("/api/accounts")) });
  const change = useMutation({
    mutationFn: ({ name, ...change }: Change) =>
      api.PATCH("/api/accounts/{name}", { params: { path: { name } }, body: change }),
    onSettled: async () => {
      setDisabling(null);
      await queries.invalidateQueries({ queryKey: ["accounts"] });
      await queries.invalidateQueries({ queryKey: ["session"] }); // one's own role may have changed
    },
  });
  const renew = useMutation({
    mutationFn: (name: string) =>
      body(api.POST("/api/accounts/{name}/password-link", { params: { path: { name } }, body: { days: 1 } })),
    onSuccess: async (link) => {
      setLink(link);
      await queries.invalidateQueries({ queryKey: ["invitations"] });
    },
  });
  if (data === undefined) return error ? <Failure error={error} /> : <Waiting what={t("Accounts are loading")} />;
  if (data.accounts.length === 0)
    return (
      <Empty title={t("No accounts")}>
        {t("Start the server without --open: it prints a link by which the first administrator makes an account.")}
      </Empty>
    );
  const failed = change.error ?? renew.error;
  return (
    <Stack gap="sm">
      {failed !== null && <Failure error={failed} />}
      <Wide label={t("Accounts")}>
        <Table className="panel" miw={640}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Name")}</Table.Th>
              <Table.Th w={140}>{t("Role")}</Table.Th>
              <Table.Th>{t("Last seen")}</Table.Th>
              <Table.Th>{t("Account since")}</Table.Th>
              <Table.Th w={40} aria-label={t("Actions")} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.accounts.map((account) => (
              <AccountRow
                key={account.name}
                account={account}
                managed={managed}
                onRole={(role) => change.mutate({ name: account.name, role })}
                onEnable={() => change.mutate({ name: account.name, disabled: false })}
                onDisable={() => setDisabling(account.name)}
                onRenew={() => renew.mutate(account.name)}
              />
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <DisableDialog
        name={disabling}
        busy={change.isPending}
        onConfirm={(name) => change.mutate({ name, disabled: true })}
        onClose={() => setDisabling(null)}
      />
      <LinkDialog made={link} onClose={() => setLink(null)} />
    </Stack>
  );
}

interface RowProps {
  account: Account;
  managed: boolean;
  onRole: (role: Role) => void;
  onEnable: () => void;
  onDisable: () => void;
  onRenew: () => void;
}

function AccountRow({ account, managed, onRole, onEnable, onDisable, onRenew }: RowProps) {
  const isSelf = useSession().name === account.name;
  return (
    <Table.Tr>
      <Table.Td>
        <Text size="sm" fw={500} component="span" c={account.disabled ? "dimmed" : undefined}>
          {account.name}
        </Text>
        {isSelf && managed && <Note text="you" />}
        {account.disabled && <Note text="disabled" colour="yellow" />}
      </Table.Td>
      <Table.Td>
        <Select
          aria-label={t("Role of {{name}}", { name: account.name })}
          data={roleChoices()}
          value={account.role}
          disabled={!managed || account.disabled}
          allowDeselect={false}
          onChange={(role) => role !== null && onRole(role as Role)}
        />
      </Table.Td>
      <Table.Td>{account.seen_at === null ? <span className="dim">{t("never")}</span> : moment(account.seen_at)}</Table.Td>
      <Table.Td>
        {moment(account.created_at)} <span className="dim">{t("by {{created_by}}", { created_by: account.created_by })}</span>
      </Table.Td>
      <Table.Td>
        <Menu position="bottom-end" disabled={!managed}>
          <Menu.Target>
            <ActionIcon variant="subtle" color="gray" aria-label={t("More of {{name}}", { name: account.name })} disabled={!managed}>
              <IconDots size={16} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={<IconKey size={15} />} onClick={onRenew} disabled={account.disabled}>
              {t("Link for a new password")}
            </Menu.Item>
            {account.disabled ? (
              <Menu.Item leftSection={<IconUserCheck size={15} />} onClick={onEnable}>
                {t("Enable")}
              </Menu.Item>
            ) : (
              <Menu.Item leftSection={<IconUserOff size={15} />} onClick={onDisable}>
                {t("Disable")}
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      </Table.Td>
    </Table.Tr>
  );
}

function Note({ text, colour = "gray" }: { text: string; colour?: string }) {
  return (
    <Badge ml={6} size="xs" variant="light" color={colour}>
      {text}
    </Badge>
  );
}
