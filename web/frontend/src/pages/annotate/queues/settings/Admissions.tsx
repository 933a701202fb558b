import { Badge, Button, Group, NumberInput, Stack, Table, Text, Title } from "@mantine/core";
import { useState, type FormEvent } from "react";

import { api, body } from "../../../../api/client";
import { Wide } from "../../../../components/Wide";
import { t } from "../../../../i18n";
import { useEdit, type Settings } from "./useSettings";

type State = Settings["admissions"][number]["state"];

/** Qualification by items with a known answer, the least share later, and who stands where. */
export function Admissions({ queue, settings: { options, admissions, checks } }: { queue: string; settings: Settings }) {
  const rules = { qualify_checks: options.qualify_checks, qualify_share: options.qualify_share, gate_checks: options.gate_checks, gate_share: options.gate_share };
  const [fields, setFields] = useState(rules);
  const store = useEdit(
    queue,
    () => body(api.PATCH("/api/queues/{queue}", { params: { path: { queue } }, body: fields })),
    t("Stored"),
  );
  const admit = useEdit(queue, ({ name, state }: { name: string; state: "admitted" | "held" }) =>
    api.PUT("/api/queues/{queue}/admissions/{name}", { params: { path: { queue, name } }, body: { state } }),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    store.mutate(undefined);
  };
  const number = (name: keyof typeof rules, label: string, max: number, share = false) => (
    <NumberInput
      label={label}
      min={0}
      max={max}
      allowDecimal={false}
      suffix={share ? " %" : undefined}
      value={share ? Math.round(100 * fields[name]) : fields[name]}
      onChange={(value) => setFields({ ...fields, [name]: (Number(value) || 0) / (share ? 100 : 1) })}
    />
  );
  return (
    <section className="panel" aria-label={t("Qualification")}>
      <Title order={2} mb={4}>
        {t("Qualification")}
      </Title>
      <form onSubmit={submit}>
        <Stack gap="xs">
          <Group grow align="end">
            {number("qualify_checks", t("Items asked first"), checks)}
            {number("qualify_share", t("Of them right, at least"), 100, true)}
            {number("gate_checks", t("Later, after so many checks"), 1000)}
            {number("gate_share", t("Right of these, at least"), 100, true)}
          </Group>
          <Text size="sm" className="dim">
            {t("The queue has {{count}} items with a known answer. 0: no such rule. The later rule is looked at after whole blocks of items, so that nobody can tell which one was a check; who falls below it gets no more items until somebody admits them.", { count: checks })}
          </Text>
          <Group>
            <Button type="submit" loading={store.isPending} disabled={JSON.stringify(fields) === JSON.stringify(rules)}>
              {t("Store the rules")}
            </Button>
          </Group>
        </Stack>
      </form>
      {(options.qualify_checks > 0 || options.gate_checks > 0) && admissions.length > 0 && (
        <Wide label={t("Who is admitted")}>
          <Table mt="sm">
            <Table.Thead>
              <Table.Tr>
                {[t("Annotator"), t("State"), t("Checks right"), t("Why"), ""].map((name) => (
                  <Table.Th key={name}>{name}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {admissions.map(({ annotator: name, state, checks: asked, right, reason }) => (
                <Table.Tr key={name}>
                  <Table.Th scope="row">{name}</Table.Th>
                  <Table.Td>
                    <Badge variant="light" color={COLOURS[state]} tt="none">
                      {stateInWords(state)}
                    </Badge>
                  </Table.Td>
                  <Table.Td>{t("{{right}} of {{total}}", { right, total: asked })}</Table.Td>
                  <Table.Td>{reason}</Table.Td>
                  <Table.Td>
                    {state === "admitted" || state === "open" ? (
                      <Button variant="subtle" color="gray" size="compact-sm" onClick={() => admit.mutate({ name, state: "held" })} aria-label={t("Hold {{name}} back", { name })}>
                        {t("Hold back")}
                      </Button>
                    ) : (
                      <Button variant="light" size="compact-sm" onClick={() => admit.mutate({ name, state: "admitted" })} aria-label={t("Admit {{name}}", { name })}>
                        {t("Admit")}
                      </Button>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Wide>
      )}
    </section>
  );
}

const COLOURS: Record<State, string> = { open: "gray", pending: "yellow", admitted: "teal", failed: "red", held: "orange" };

function stateInWords(state: State): string {
  return { open: t("no rule"), pending: t("qualifying"), admitted: t("admitted"), failed: t("not passed"), held: t("held back") }[state];
}
