import { Anchor, Code, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { Empty } from "../../../components/States";
import { Loaded } from "../shared/Loaded";
import { LoopPanel } from "./LoopPanel";

/** Every loop with its iterations. */
export function LoopsPage() {
  const query = useQuery({ queryKey: ["curate", "loops"], queryFn: () => body(api.GET("/api/curate/loops")), refetchInterval: 15_000 });
  return (
    <Loaded query={query}>
      {({ loops }) =>
        loops.length === 0 ? (
          <Empty title="No loop has begun">
            Describe one and begin it under <Anchor component={Link} to="/curate/stages">Stages</Anchor>, or{" "}
            <Code>assay curate stage1 --example &gt; loop.yaml</Code>
          </Empty>
        ) : (
          <Stack gap="sm">
            {loops.map((loop) => (
              <LoopPanel key={loop.name} loop={loop} />
            ))}
          </Stack>
        )
      }
    </Loaded>
  );
}
