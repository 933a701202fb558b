import { IconChartLine, IconCoin, IconDatabase, IconFilter, IconThumbUp, IconUsers, type Icon } from "@tabler/icons-react";
import type { ComponentType } from "react";

import type { Permission } from "../api/session";
import { lazyPage } from "../components/lazyPage";

/** One entry of the navigation. Its page is loaded when it is first opened, and takes every address below `path`. */
export interface Area {
  path: string;
  label: string;
  icon: Icon;
  needs: Permission;
  page: ComponentType;
}

export const AREAS: Area[] = [
  { path: "/annotate", label: "Annotate", icon: IconThumbUp, needs: "queues", page: lazyPage(() => import("../pages/annotate/AnnotatePage")) },
  { path: "/curate", label: "Curate", icon: IconFilter, needs: "records", page: lazyPage(() => import("../pages/curate/CuratePage")) },
  { path: "/data", label: "Data", icon: IconDatabase, needs: "records", page: lazyPage(() => import("../pages/data/DataPage")) },
  { path: "/rewards", label: "Rewards", icon: IconCoin, needs: "records", page: lazyPage(() => import("../pages/rewards/RewardsPage")) },
  { path: "/runs", label: "Runs", icon: IconChartLine, needs: "records", page: lazyPage(() => import("../pages/runs/RunsPage")) },
  { path: "/access", label: "Access", icon: IconUsers, needs: "administer", page: lazyPage(() => import("../pages/access/AccessPage")) },
];
