import { Anchor, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../api/client";
import { count } from "../../format/count";
import { t } from "../../i18n";

type Detail = Schemas["RunDetail"];
type Linked = Schemas["RunLink"];

/** What the run read and made, each with the way to its own history. */
export function RunLinks({ detail }: { detail: Detail }) {
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        <Links title={t("Inputs")} links={detail.inputs} empty={t("It read nothing that is recorded.")} />
        <Links title={t("Outputs")} links={detail.outputs} empty={t("It has made nothing that is recorded yet.")} />
      </SimpleGrid>
      {detail.more_links > 0 && (
        <Text size="sm" className="dim">
          {t("{{more_links}} more are not shown.", { more_links: count(detail.more_links) })}
        </Text>
      )}
      {detail.resumed_in.length > 0 && (
        <Text size="sm">
          {t("Gone on in")}{" "}
          {detail.resumed_in.map((id) => (
            <Anchor key={id} component={Link} to={`/runs/${id}`} size="sm" ff="monospace" mr={6}>
              {id}
            </Anchor>
          ))}
        </Text>
      )}
      <Anchor component={Link} to={`/data/lineage/${detail.run.id}`} size="sm">
        {t("What it came from and what came of it, all the way")}
      </Anchor>
    </Stack>
  );
}

function Links({ title, links, empty }: { title: string; links: Linked[]; empty: string }) {
  return (
    <section className="panel" aria-label={title}>
      <Title order={2} mb={4}>
        {title}
      </Title>
      {links.length === 0 ? (
        <Text size="sm" className="dim">
          {empty}
        </Text>
      ) : (
        <Table>
          <Table.Tbody>
            {links.map((one) => (
              <Table.Tr key={`${one.kind} ${one.ref}`}>
                <Table.Td className="dim" w={90} style={{ verticalAlign: "top" }}>
                  {one.kind}
                </Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere" }}>
                  <Ref link={one} />
                  {one.label !== null && (
                    <Text size="xs" className="dim" ff="monospace">
                      {one.ref}
                    </Text>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </section>
  );
}

/** A run has its page; what else has an id has its lineage. */
function Ref({ link }: { link: Linked }) {
  const label = link.label === null ? link.ref : [link.label, link.about].filter(Boolean).join(", ");
  if (link.kind === "model_version") return <Text size="sm">{label}</Text>;
  const to = link.kind === "run" ? `/runs/${link.ref}` : `/data/lineage/${encodeURIComponent(link.ref)}`;
  return (
    <Anchor component={Link} to={to} size="sm">
      {label}
    </Anchor>
  );
}
