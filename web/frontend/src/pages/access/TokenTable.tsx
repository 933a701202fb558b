import { Button, Table } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { AskFirst } from "../../components/AskFirst";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { roleName } from "./roles";

type Token = Schemas["ApiToken"];

/** One's own tokens, or for an administrator everybody's: what each is for, when it was last used, and revoking it. */
export function TokenTable({ everybody }: { everybody: boolean }) {
  const queries = useQueryClient();
  const [leaving, leave] = useState<Token | null>(null);
  const { data, dataUpdatedAt, failureReason: error } = useQuery({
    queryKey: ["tokens", everybody],
    queryFn: () => body(api.GET("/api/tokens", { params: { query: { everybody } } })),
  });
  const revoke = useMutation({
    mutationFn: (id: string) => api.DELETE("/api/tokens/{token_id}", { params: { path: { token_id: id } } }),
    onSuccess: () => leave(null),
    onSettled: () => queries.invalidateQueries({ queryKey: ["tokens"] }),
  });
  if (data === undefined) return error === null ? <Waiting what={t("Tokens are loading")} /> : <Failure error={error} />;
  if (data.tokens.length === 0)
    return <Empty title={t("No tokens yet")}>{everybody ? t("Everybody makes their own: in the menu at their name.") : t("Tokens that you make are listed here.")}</Empty>;
  return (
    <>
      <Wide label={t("API tokens")}>
        <Table className="panel" miw={680}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("For")}</Table.Th>
              {everybody && <Table.Th>{t("Of")}</Table.Th>}
              <Table.Th>{t("Role")}</Table.Th>
              <Table.Th>{t("Last used")}</Table.Th>
              <Table.Th>{t("Until")}</Table.Th>
              <Table.Th w={90} aria-label={t("Actions")} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.tokens.map((token) => (
              <Table.Tr key={token.id}>
                <Table.Td style={{ overflowWrap: "anywhere" }}>
                  {token.label} <span className="dim">{token.id}</span>
                </Table.Td>
                {everybody && <Table.Td>{token.name}</Table.Td>}
                <Table.Td>{roleName(token.role)}</Table.Td>
                <Table.Td>{token.used_at === null ? t("never") : moment(token.used_at)}</Table.Td>
                <Table.Td>
                  {token.expires_at * 1000 > dataUpdatedAt ? moment(token.expires_at) : <span className="dim">{t("expired {{at}}", { at: moment(token.expires_at) })}</span>}
                </Table.Td>
                <Table.Td>
                  <Button variant="subtle" color="gray" size="compact-xs" onClick={() => leave(token)} aria-label={t("Revoke the token for {{label}}", { label: token.label })}>
                    {t("Revoke")}
                  </Button>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <AskFirst
        opened={leaving !== null}
        onClose={() => leave(null)}
        title={t("Revoke the token for {{label}}?", { label: leaving?.label ?? "" })}
        act={t("Revoke")}
        keep={t("Keep it")}
        pending={revoke.isPending}
        error={revoke.error}
        onAct={() => leaving !== null && revoke.mutate(leaving.id)}
      >
        {t("Programs that use it are refused from their next request on. It cannot be made valid again; a new one can be made.")}
      </AskFirst>
    </>
  );
}
