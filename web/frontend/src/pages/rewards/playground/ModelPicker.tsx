import { Alert, Checkbox, Group, Stack, Text, Tooltip } from "@mantine/core";
import { IconPlugConnectedX } from "@tabler/icons-react";

import type { Schemas } from "../../../api/client";
import { short } from "../format";
import type { ModelChoice } from "./draft";

type Offer = Schemas["RewardServerOffer"];

export function sameModel(one: ModelChoice, other: ModelChoice): boolean {
  return one.address === other.address && one.model === other.model;
}

/** Which models are asked, by reward server. A server that does not answer says why. */
export function ModelPicker({
  servers,
  chosen,
  onChange,
}: {
  servers: Offer[];
  chosen: ModelChoice[];
  onChange: (chosen: ModelChoice[]) => void;
}) {
  const gone = chosen.filter(
    (choice) => !servers.some((server) => server.models.some((model) => sameModel(choice, { address: server.address, model: model.name }))),
  );
  return (
    <Stack gap={8} component="fieldset" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend style={{ fontWeight: 600, marginBottom: 4 }}>Models</legend>
      {servers.map((server) => (
        <Stack key={server.address} gap={4}>
          <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
            {server.address}
          </Text>
          {server.error !== null && (
            <Alert color="yellow" icon={<IconPlugConnectedX size={16} />} p={6} title="This server does not answer">
              {server.error}
            </Alert>
          )}
          {server.models.map((model) => {
            const choice = { address: server.address, model: model.name };
            const on = chosen.some((other) => sameModel(other, choice));
            return (
              <Checkbox
                key={model.name}
                size="xs"
                checked={on}
                onChange={() => onChange(on ? chosen.filter((other) => !sameModel(other, choice)) : [...chosen, choice])}
                label={model.name}
                description={
                  <Tooltip label={`version ${model.version}, up to ${model.max_length} tokens, parity ${model.parity}`}>
                    <span>
                      {model.kind}, {short(model.version)}, {model.calibrated ? "calibrated" : "not calibrated"}
                      {model.principle_use === "refused" ? "" : `, principle ${model.principle_use}`}
                    </span>
                  </Tooltip>
                }
              />
            );
          })}
        </Stack>
      ))}
      {gone.map((choice) => (
        <Group key={`${choice.address} ${choice.model}`} gap={6}>
          <Checkbox
            size="xs"
            checked
            label={`${choice.model}, which ${choice.address} does not serve now`}
            onChange={() => onChange(chosen.filter((other) => !sameModel(other, choice)))}
          />
        </Group>
      ))}
    </Stack>
  );
}
