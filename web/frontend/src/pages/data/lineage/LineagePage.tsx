import { Anchor, Group, SimpleGrid, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { Lineage } from "./Lineage";

/** The lineage of whatever the address names: an id, a snapshot's or artifact's name, a file. */
export function LineagePage() {
  const name = useParams()["*"] ?? "";
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed.trim()) void navigate(`/data/lineage/${encodeURIComponent(typed.trim())}`);
  };
  return (
    <Stack gap="sm">
      <Group justify="space-between" align="end" gap="xs">
        <Title order={1}>{t("Lineage")}</Title>
        <form onSubmit={submit} role="search" aria-label={t("Lineage")}>
          <TextInput
            aria-label={t("Id, name of a snapshot or artifact, or file")}
            placeholder={t("id, snapshot, artifact or file")}
            w={280}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
        </form>
      </Group>
      {name === "" ? <Empty title={t("Of what?")}>{t("Give an id, the name of a snapshot or artifact, or a file that was imported.")}</Empty> : <Of key={name} name={name} />}
    </Stack>
  );
}

function Of({ name }: { name: string }) {
  const { data, error, failureReason } = useQuery({
    queryKey: ["lineage", name, "down", 10],
    queryFn: () => body(api.GET("/api/lineage/{name}", { params: { path: { name }, query: { direction: "down", depth: 1, width: 10 } } })),
    staleTime: 60_000,
  });
  if (data === undefined) return error !== null || failureReason !== null ? <Failure error={error ?? failureReason} /> : <Waiting />;
  return (
    <>
      <div className="panel">
        <Text fw={600} style={{ overflowWrap: "anywhere" }}>
          {data.about || data.id}
        </Text>
        <Group gap="md">
          <Text size="xs" ff="monospace" className="dim" style={{ overflowWrap: "anywhere" }}>
            {data.id}
          </Text>
          <Look node={data} />
        </Group>
      </div>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        {(["up", "down"] as const).map((direction) => (
          <section key={direction} className="panel" aria-label={direction === "up" ? t("Came from") : t("Led to")}>
            <Lineage name={name} direction={direction} />
          </section>
        ))}
      </SimpleGrid>
    </>
  );
}

/** Where the thing itself can be looked at. */
function Look({ node }: { node: Schemas["LineageNode"] }) {
  const to: Record<string, string> = {
    comparison: `/data/comparisons/${node.id}`,
    run: `/runs/${node.id}`,
    prompt: `/data?id=${node.id}`,
    response: `/data?id=${node.id}`,
    judgment: `/data?id=${node.id}`,
  };
  const path = to[node.kind];
  if (path === undefined) return null;
  return (
    <Anchor component={Link} to={path} size="sm">
      {node.kind === "comparison" || node.kind === "run" ? t("Its page") : t("Its comparisons")}
    </Anchor>
  );
}
