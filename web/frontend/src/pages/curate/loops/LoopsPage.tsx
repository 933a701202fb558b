import { Anchor, Code, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { Empty } from "../../../components/States";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { LoopPanel } from "./LoopPanel";

/** Every loop with its iterations. */
export function LoopsPage() {
  const query = useQuery({ queryKey: ["curate", "loops"], queryFn: () => body(api.GET("/api/curate/loops")), refetchInterval: 15_000 });
  return (
    <Loaded query={query}>
      {({ loops }) =>
        loops.length === 0 ? (
          <Empty title={t("No loop has begun")}>
            <Trans
              i18nKey="Describe one and begin it under <a>Stages</a>, or <code>assay curate stage1 --example > loop.yaml</code>"
              components={{ a: <Anchor component={Link} to="/curate/stages" />, code: <Code /> }}
            />
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
