import { Button, Group, MultiSelect, NumberInput, Paper, Stack, Switch, TagsInput, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useNavigate } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure } from "../../../components/States";

const POOLS = ["unverified", "gold", "silver", "recycled", "discarded", "pending"];

/** A queue from a selection of comparisons. */
export function NewQueue() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [fields, setAsked] = useState({
    name: "",
    pools: ["unverified"],
    sources: [] as string[],
    categories: [] as string[],
    limit: 200 as number | null,
    overlap: 1,
    everyone: false,
    checks: 10,
    guideline: "",
    reason: "",
    principles: [] as string[],
    lease: 30,
    project: "default",
  });
  const set = (part: Partial<typeof fields>) => setAsked({ ...fields, ...part });
  // Suggested, not demanded: the store may be busy, and a name that is none is refused with those there are.
  const facets = useQuery({
    queryKey: ["comparison-facets"],
    queryFn: () => body(api.GET("/api/comparisons/facets")),
    staleTime: 60_000,
  });
  const make = useMutation({
    mutationFn: (queue: Schemas["NewQueue"]) => body(api.POST("/api/queues", { body: queue })),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["queues"] });
      void navigate("/annotate");
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const { name, pools, sources, categories, limit, guideline, reason, principles, project } = fields;
    make.mutate({
      ...{ name, pools, sources, categories, limit, guideline, reason, principles, project, seed: 0 },
      overlap: fields.everyone ? "all" : fields.overlap,
      gold_checks: fields.checks / 100,
      lease_minutes: fields.lease,
    });
  };
  return (
    <Paper withBorder p="md" maw={640}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <Title order={1}>New queue</Title>
          <TextInput
            label="Name"
            description="Letters, digits and . _ + - after the first"
            required
            pattern="[A-Za-z0-9][A-Za-z0-9_.+\-]{0,99}"
            value={fields.name}
            onChange={(event) => set({ name: event.currentTarget.value })}
          />
          <TextInput
            label="Project"
            description="Whose members are asked; one of yours"
            required
            value={fields.project}
            onChange={(event) => set({ project: event.currentTarget.value })}
          />
          <MultiSelect label="Pools" data={POOLS} value={fields.pools} onChange={(pools) => set({ pools })} />
          <Group grow align="start">
            <TagsInput
              label="Sources"
              description="None: all"
              splitChars={[]}
              data={facets.data?.sources.map(({ value }) => value)}
              value={fields.sources}
              onChange={(sources) => set({ sources })}
            />
            <TagsInput
              label="Categories"
              description="None: all"
              splitChars={[]}
              data={facets.data?.categories.map(({ value }) => value)}
              value={fields.categories}
              onChange={(categories) => set({ categories })}
            />
          </Group>
          <Group grow align="end">
            <NumberInput
              label="At most"
              description="Drawn by hash; empty: all"
              min={1}
              value={fields.limit ?? ""}
              onChange={(value) => set({ limit: value === "" ? null : Number(value) })}
            />
            <NumberInput
              label="People who see each"
              min={1}
              disabled={fields.everyone}
              value={fields.overlap}
              onChange={(value) => set({ overlap: Number(value) || 1 })}
            />
          </Group>
          <Switch label="Everyone votes on everything" checked={fields.everyone} onChange={(event) => set({ everyone: event.currentTarget.checked })} />
          <Group grow align="end">
            <NumberInput
              label="Gold checks, %"
              description="Known answers mixed in"
              min={0}
              max={50}
              value={fields.checks}
              onChange={(value) => set({ checks: Number(value) || 0 })}
            />
            <NumberInput
              label="Lease, minutes"
              description="Until an untouched item goes to others"
              min={0.1}
              max={10_080}
              value={fields.lease}
              onChange={(value) => set({ lease: Number(value) || 30 })}
            />
          </Group>
          <Textarea label="Guideline" description="Shown beside every item" autosize minRows={2} value={fields.guideline} onChange={(event) => set({ guideline: event.currentTarget.value })} />
          <TextInput label="Why these are asked" description="Shown beside every item" value={fields.reason} onChange={(event) => set({ reason: event.currentTarget.value })} />
          <TagsInput
            label="Principles"
            description="Asked of both responses: yes, partly or no, with the words that show it. Enter ends each."
            splitChars={[]}
            maxTags={20}
            value={fields.principles}
            onChange={(principles) => set({ principles })}
          />
          {make.error !== null && <Failure error={make.error} />}
          <Group gap="xs">
            <Button type="submit" loading={make.isPending}>
              Make the queue
            </Button>
            <Button component={Link} to="/annotate" variant="subtle" color="gray">
              Cancel
            </Button>
            <Text size="xs" className="dim">
              Gold checks come from the gold pool; without one there are none.
            </Text>
          </Group>
        </Stack>
      </form>
    </Paper>
  );
}
